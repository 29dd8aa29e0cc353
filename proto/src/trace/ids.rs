//! Ids of traces and spans, derived with BLAKE3 from what they identify, never random.

use fl_compress::Digest;

/// Id of a trace. Never all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId(pub [u8; 16]);

/// Id of a span within its trace. Never all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// The trace of a round. `instance` identifies the run.
    pub fn of_round(instance: &Digest, round: u64) -> Self {
        Self(id(&["trace"], instance, round, 0))
    }
}

impl SpanId {
    /// The root of a round's trace.
    pub fn of_round(instance: &Digest, round: u64) -> Self {
        Self(id(&["round"], instance, round, 0))
    }

    /// A step of the round: what is done, who does it, and its start in nanoseconds since 1970.
    pub fn of_part(instance: &Digest, round: u64, (name, who): (&str, &str), start: u64) -> Self {
        Self(id(&["part", name, who], instance, round, start))
    }
}

fn id<const N: usize>(words: &[&str], instance: &Digest, round: u64, start: u64) -> [u8; N] {
    let mut bytes = Vec::with_capacity(128);
    for word in words {
        bytes.extend_from_slice(&(word.len() as u64).to_le_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(&instance.0);
    bytes.extend_from_slice(&round.to_le_bytes());
    bytes.extend_from_slice(&start.to_le_bytes());
    let digest = Digest::of(&bytes).0;
    let mut id = std::array::from_fn(|i| digest[i]);
    // In the standard, all zero means no id.
    if id == [0; N] {
        id[0] = 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_round_of_the_same_run_has_the_same_ids_for_ever() {
        let instance = Digest([7; 32]);
        let trace = TraceId::of_round(&instance, 3);
        let root = SpanId::of_round(&instance, 3);
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!((hex(&trace.0), hex(&root.0)), (TRACE.to_owned(), ROOT.to_owned()));
    }

    #[test]
    fn ids_differ_by_run_round_name_who_and_start() {
        let (a, b) = (Digest([7; 32]), Digest([8; 32]));
        assert_ne!(TraceId::of_round(&a, 3), TraceId::of_round(&b, 3));
        assert_ne!(TraceId::of_round(&a, 3), TraceId::of_round(&a, 4));
        let part = SpanId::of_part(&a, 3, ("send", "anna"), 9);
        for other in [
            SpanId::of_round(&a, 3),
            SpanId::of_part(&b, 3, ("send", "anna"), 9),
            SpanId::of_part(&a, 4, ("send", "anna"), 9),
            SpanId::of_part(&a, 3, ("sen", "danna"), 9),
            SpanId::of_part(&a, 3, ("send", "berta"), 9),
            SpanId::of_part(&a, 3, ("send", "anna"), 10),
        ] {
            assert_ne!(part, other);
        }
    }

    /// Clients and servers of different versions must agree on these.
    const TRACE: &str = "9ba5bf71132cc86a86661b6d7e7f837b";
    const ROOT: &str = "1e44a372526e19a4";
}
