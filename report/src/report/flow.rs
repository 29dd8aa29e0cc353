//! What the bytes on a socket were for.

use serde::{Deserialize, Serialize};

use crate::table::sums::{sum, sums};

/// Declares the fields of a flow: `/// meaning`, then `name [unit]`, and for a kind of bytes its direction and name.
macro_rules! flow {
    ($( #[doc = $about:literal] $(#[$meta:meta])* $field:ident [$unit:literal] $($direction:literal $kind:literal)?, )*) => {
        sums! {
            /// Bytes of one client in one round, or sums of them, with the figures that only connections know.
            #[derive(Copy, Eq, Serialize, Deserialize)]
            #[serde(default)]
            pub struct Flow {
                $( #[doc = $about] $(#[$meta])* $field: u64 [$unit], )*
            }
        }

        impl Flow {
            /// The names of the fields, in the order of their declaration.
            pub const NAMES: [&'static str; Self::FIELDS] = [$( stringify!($field) ),*];
            /// Number of fields.
            pub const FIELDS: usize = [$( $unit ),*].len();
            const KINDS: [Kind; [$( $( $kind, )? )*].len()] = [$( $( ($direction, $kind, |flow| flow.$field), )? )*];

            /// The fields, in the order of their declaration.
            pub fn fields(&self) -> [u64; Self::FIELDS] {
                [$( self.$field ),*]
            }

            /// The fields, in the order of their declaration.
            pub fn fields_mut(&mut self) -> [&mut u64; Self::FIELDS] {
                [$( &mut self.$field ),*]
            }
        }
    };
}

/// Direction and name of a kind of bytes, and the field that counts it.
type Kind = (&'static str, &'static str, fn(&Flow) -> u64);

flow! {
    /// Frames of accepted updates.
    update ["B"] "up" "update",
    /// Frames of updates that were refused, or sent again.
    refused ["B"] "up" "refused",
    /// Parts of frames in flight when an upload broke off, and frames that were given up.
    aborted ["B"] "up" "aborted",
    /// Reported evaluations.
    evaluation ["B"] "up" "evaluation",
    /// All other messages from the client: joining, watching, offers and the headers of frames.
    control_up ["B"] "up" "control",
    /// TLS records from the client that have the size of an HTTP/2 ping.
    heartbeat_up ["B"] "up" "heartbeat",
    /// The rest of the bytes read from the client's sockets: TLS and HTTP/2.
    transport_up ["B"] "up" "transport",
    /// All bytes read from the client's sockets: the sum of the seven columns before.
    socket_up ["B"],
    /// Frames of model updates.
    steps ["B"] "down" "steps",
    /// Snapshots of the model.
    snapshot ["B"] "down" "snapshot",
    /// Frozen tensors of the model, which a client without them fetches once. Left out where no client did.
    #[serde(skip_serializing_if = "is_zero")]
    base ["B"] "down" "base",
    /// All other messages to the client: the run, its states, receipts and the headers of models.
    control_down ["B"] "down" "control",
    /// TLS records to the client that have the size of an HTTP/2 ping.
    heartbeat_down ["B"] "down" "heartbeat",
    /// The rest of the bytes written to the client's sockets: TLS and HTTP/2.
    transport_down ["B"] "down" "transport",
    /// All bytes written to the client's sockets: the sum of the six columns before.
    socket_down ["B"],
    /// Connections opened.
    connections [""],
    /// Uploads that were resumed or sent again.
    retries [""],
    /// Time in which uploads were arriving.
    upload_ms ["ms"],
    /// Time in which models and bases were being sent.
    download_ms ["ms"],
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Flow {
    /// Frame bytes from the client, whether they were of use or not.
    pub fn frames_up(&self) -> u64 {
        sum([self.update, self.refused, self.aborted])
    }

    /// Frame bytes to the client.
    pub fn frames_down(&self) -> u64 {
        sum([self.steps, self.snapshot])
    }

    /// Frame bytes from the client that contributed to no model.
    pub fn waste(&self) -> u64 {
        sum([self.refused, self.aborted])
    }

    /// All bytes on the client's sockets.
    pub fn socket(&self) -> u64 {
        sum([self.socket_up, self.socket_down])
    }

    /// Direction, kind and bytes of each kind, the transport's last in each direction: `("up", "update", bytes)`.
    pub fn kinds(&self) -> [(&'static str, &'static str, u64); Self::KINDS.len()] {
        Self::KINDS.map(|(direction, kind, bytes)| (direction, kind, bytes(self)))
    }

    /// As [`Flow::kinds`], without the base where no client fetched any.
    pub(crate) fn present_kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        self.kinds()
            .into_iter()
            .filter(|(_, kind, bytes)| *kind != "base" || *bytes > 0)
    }

    /// Books all bytes of the sockets that no other kind accounts for as transport.
    pub fn settle_transport(&mut self) {
        (self.transport_up, self.transport_down) = (0, 0);
        self.transport_up = self.socket_up.saturating_sub(self.kinds_in("up"));
        self.transport_down = self.socket_down.saturating_sub(self.kinds_in("down"));
    }

    /// The kinds of one direction, added up: the sockets' bytes in a flow that is settled.
    pub(crate) fn kinds_in(&self, direction: &str) -> u64 {
        sum(self
            .kinds()
            .into_iter()
            .filter(|kind| kind.0 == direction)
            .map(|kind| kind.2))
    }

    /// Returns the difference to an earlier state, field by field.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut out = *self;
        let pairs = out.fields_mut().into_iter().zip(earlier.fields());
        pairs.for_each(|(own, less)| *own = own.saturating_sub(less));
        out
    }
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
        assert_eq!(sum.fields().iter().sum::<u64>(), 2 * (1..=19).sum::<u64>());
    }

    #[test]
    fn the_kinds_of_a_settled_flow_add_up_to_its_sockets() {
        let mut flow = numbered();
        (flow.socket_up, flow.socket_down) = (1_000, 2_000);
        flow.settle_transport();
        assert_eq!((flow.kinds_in("up"), flow.kinds_in("down")), (1_000, 2_000));
    }
}
