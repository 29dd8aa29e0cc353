//! What the benches need to reach. No stable interface; use nothing of it elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_proto::{ClientId, Meter};

use crate::accounting::client_counters::{ClientCounters, Sent, UploadOutcome};
use crate::accounting::connections::Connections;
use crate::accounting::hash_chain::HashChain;
use crate::accounting::ledger::Row;
use crate::accounting::transfers::{DownloadAccount, UploadAccount};
use crate::storage::record::Record;

/// Bytes of a part of a frame, as clients send them.
const PART: u64 = fl_proto::CHUNK as u64;
/// Messages of a client in a round that are no part of a frame, either way: joining, watching, offers and receipts.
const MESSAGES: usize = 6;

/// The books of a server, kept as the server keeps them.
#[derive(Debug)]
pub struct Books {
    traffic: Connections,
    chain: HashChain,
    meters: BTreeMap<ClientId, Arc<Meter>>,
}

impl Books {
    /// One connection of each client.
    pub fn new(clients: &[ClientId]) -> Self {
        let traffic = Connections::new();
        let connect = |client: &ClientId| {
            let meter = Arc::new(Meter::within(Arc::clone(traffic.total())));
            traffic.connected(Arc::clone(&meter));
            traffic.identified(&meter, client);
            (client.clone(), meter)
        };
        let meters = clients.iter().map(connect).collect();
        Self {
            traffic,
            chain: HashChain::default(),
            meters,
        }
    }

    /// The connections' meters.
    pub fn meters(&self) -> impl Iterator<Item = &Arc<Meter>> {
        self.meters.values()
    }

    /// Counts what the messages of a round are for: of each client a frame of `bytes` either way, and the rest.
    pub fn count(&self, bytes: u64) {
        for (client, meter) in &self.meters {
            let mut counters = Arc::<ClientCounters>::default();
            for _ in 0..MESSAGES {
                counters = self.traffic.identified(meter, client);
                counters.asked(&());
                counters.answered(&());
            }
            let mut upload = UploadAccount::open(&counters, meter, bytes);
            let download = DownloadAccount::begin(&counters, Sent::Steps);
            upload.begin(0);
            let parts = (0..bytes).step_by(PART as usize).map(|at| PART.min(bytes - at));
            for part in parts {
                upload.chunk(part, true);
                download.chunk(part);
            }
            upload.finish(UploadOutcome::Accepted);
        }
    }

    /// Ends a round: takes a sample, makes rows of it, and a hash chain entry of them, of other `rows` and of
    /// `records`. Returns all rows as they are stored.
    pub fn close(&mut self, round: u64, records: &[Record], mut rows: Vec<Row>) -> Vec<Vec<u8>> {
        rows.extend(self.traffic.sample(UploadOutcome::Refused).rows(round));
        rows.iter().for_each(|row| self.chain.row(row));
        records.iter().for_each(|record| self.chain.record(record));
        let entry = self.chain.close();
        rows.push(Row::Entry { round, entry });
        rows.iter().map(Row::to_bytes).collect()
    }
}
