//! Access for the benches. Unstable; do not use it elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_proto::{ClientId, Meter};

use crate::accounting::client_counters::{ClientCounters, DownloadKind, UploadOutcome};
use crate::accounting::connections::Connections;
use crate::accounting::hash_chain::HashChain;
use crate::accounting::ledger::Row;
use crate::accounting::transfers::{DownloadAccount, UploadAccount};
use crate::storage::record::Record;

/// Bytes of a chunk, as clients send them.
const PART: u64 = fl_proto::CHUNK as u64;
/// Messages of a client in a round beside chunks, in each direction: joining, watching, offers and acknowledgements.
const MESSAGES: usize = 6;

#[derive(Debug)]
pub struct Books {
    traffic: Connections,
    chain: HashChain,
    meters: BTreeMap<ClientId, Arc<Meter>>,
}

impl Books {
    pub fn new(clients: &[ClientId]) -> Self {
        let traffic = Connections::new();
        let meters = clients
            .iter()
            .map(|client| {
                let meter = Arc::new(Meter::within(Arc::clone(traffic.total())));
                traffic.connected(Arc::clone(&meter));
                traffic.identified(&meter, client);
                (client.clone(), meter)
            })
            .collect();
        Self {
            traffic,
            chain: HashChain::default(),
            meters,
        }
    }

    pub fn meters(&self) -> impl Iterator<Item = &Arc<Meter>> {
        self.meters.values()
    }

    /// Counts the messages of a round: for each client, a frame of `bytes` in each direction, and the others.
    pub fn count(&self, bytes: u64) {
        for (client, meter) in &self.meters {
            let mut counters = Arc::<ClientCounters>::default();
            for _ in 0..MESSAGES {
                counters = self.traffic.identified(meter, client);
                counters.asked(&());
                counters.answered(&());
            }
            let mut upload = UploadAccount::open(&counters, meter, bytes);
            let download = DownloadAccount::begin(&counters, DownloadKind::Steps);
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
