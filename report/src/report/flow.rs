//! What the bytes on a socket were for.

use serde::{Deserialize, Serialize};

use crate::columns::line;

line! {
    /// Bytes of one client in one round, or sums of them; with them the figures that only the connections know.
    #[derive(Copy, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Flow {
        /// Frames of updates that were taken.
        update: u64 ["B"],
        /// Frames of updates that were refused, or sent once more.
        refused: u64 ["B"],
        /// Parts of frames that were on their way when an upload broke off, and frames that broke off for good.
        aborted: u64 ["B"],
        /// Evaluations reported.
        evaluation: u64 ["B"],
        /// All other messages from the client: joining, watching, offers and the headers of frames.
        control_up: u64 ["B"],
        /// TLS records from the client of the size of an HTTP/2 ping.
        heartbeat_up: u64 ["B"],
        /// The rest of what was read from the client's sockets: TLS and HTTP/2.
        transport_up: u64 ["B"],
        /// Everything read from the client's sockets: the sum of the seven before.
        socket_up: u64 ["B"],
        /// Frames of the chain of steps.
        steps: u64 ["B"],
        /// Snapshots of the model.
        snapshot: u64 ["B"],
        /// All other messages to the client: the run, its states, receipts and the headers of models.
        control_down: u64 ["B"],
        /// TLS records to the client of the size of an HTTP/2 ping.
        heartbeat_down: u64 ["B"],
        /// The rest of what was written to the client's sockets: TLS and HTTP/2.
        transport_down: u64 ["B"],
        /// Everything written to the client's sockets: the sum of the five before.
        socket_down: u64 ["B"],
        /// Connections opened.
        connections: u64 [""],
        /// Uploads that were resumed or sent again.
        retries: u64 [""],
        /// Time in which uploads were arriving.
        upload_ms: u64 ["ms"],
        /// Time in which models were sent.
        download_ms: u64 ["ms"],
    }
}

impl Flow {
    /// Frame bytes from the client, wanted or not.
    pub fn frames_up(&self) -> u64 {
        sum([self.update, self.refused, self.aborted])
    }

    /// Frame bytes to the client.
    pub fn frames_down(&self) -> u64 {
        sum([self.steps, self.snapshot])
    }

    /// Frame bytes that no model came of.
    pub fn waste(&self) -> u64 {
        sum([self.refused, self.aborted])
    }

    /// Everything on the client's sockets.
    pub fn socket(&self) -> u64 {
        sum([self.socket_up, self.socket_down])
    }

    /// The bytes by direction and kind, the transport's last: `("up", "update", bytes)`.
    pub fn kinds(&self) -> [(&'static str, &'static str, u64); 12] {
        [
            ("up", "update", self.update),
            ("up", "refused", self.refused),
            ("up", "aborted", self.aborted),
            ("up", "evaluation", self.evaluation),
            ("up", "control", self.control_up),
            ("up", "heartbeat", self.heartbeat_up),
            ("up", "transport", self.transport_up),
            ("down", "steps", self.steps),
            ("down", "snapshot", self.snapshot),
            ("down", "control", self.control_down),
            ("down", "heartbeat", self.heartbeat_down),
            ("down", "transport", self.transport_down),
        ]
    }

    /// Makes the rest of what the sockets carried that of the transport.
    pub fn settle_transport(&mut self) {
        let known_up = sum([self.frames_up(), self.evaluation, self.control_up, self.heartbeat_up]);
        let known_down = sum([self.frames_down(), self.control_down, self.heartbeat_down]);
        self.transport_up = self.socket_up.saturating_sub(known_up);
        self.transport_down = self.socket_down.saturating_sub(known_down);
    }

    /// Adds another flow, field by field.
    pub fn add(&mut self, other: &Self) {
        let pairs = self.fields_mut().into_iter().zip(other.fields());
        pairs.for_each(|(own, more)| *own = own.saturating_add(more));
    }

    /// What has been added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut out = *self;
        let pairs = out.fields_mut().into_iter().zip(earlier.fields());
        pairs.for_each(|(own, less)| *own = own.saturating_sub(less));
        out
    }

    /// The fields, in the order of their declaration.
    pub fn fields(&self) -> [u64; Self::FIELDS] {
        let mut copy = *self;
        copy.fields_mut().map(|field| *field)
    }

    /// Number of fields.
    pub const FIELDS: usize = 18;

    /// The fields, in the order of their declaration.
    pub fn fields_mut(&mut self) -> [&mut u64; Self::FIELDS] {
        let Self {
            update,
            refused,
            aborted,
            evaluation,
            control_up,
            heartbeat_up,
            transport_up,
            socket_up,
            steps,
            snapshot,
            control_down,
            heartbeat_down,
            transport_down,
            socket_down,
            connections,
            retries,
            upload_ms,
            download_ms,
        } = self;
        [
            update,
            refused,
            aborted,
            evaluation,
            control_up,
            heartbeat_up,
            transport_up,
            socket_up,
            steps,
            snapshot,
            control_down,
            heartbeat_down,
            transport_down,
            socket_down,
            connections,
            retries,
            upload_ms,
            download_ms,
        ]
    }
}

fn sum<const N: usize>(bytes: [u64; N]) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered() -> Flow {
        let mut flow = Flow::default();
        flow.fields_mut().into_iter().zip(1..).for_each(|(field, n)| *field = n);
        flow
    }

    #[test]
    fn adding_and_taking_the_difference_are_opposites() {
        let mut sum = numbered();
        sum.add(&numbered());
        assert_eq!(sum.since(&numbered()), numbered());
        assert_eq!(sum.fields().iter().sum::<u64>(), 2 * (1..=18).sum::<u64>());
    }

    #[test]
    fn the_kinds_of_a_settled_flow_add_up_to_its_sockets() {
        let mut flow = numbered();
        (flow.socket_up, flow.socket_down) = (1_000, 2_000);
        flow.settle_transport();
        let of = |direction| {
            flow.kinds()
                .iter()
                .filter(|kind| kind.0 == direction)
                .map(|kind| kind.2)
                .sum::<u64>()
        };
        assert_eq!((of("up"), of("down")), (1_000, 2_000));
    }
}
