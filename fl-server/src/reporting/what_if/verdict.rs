//! The verdict on an answer, as sentences: bytes, fidelity, whether a run with the spec is worthwhile,
//! and how the replay differs from the recorded run.

use crate::model::run_metadata::Compression;
use fl_compress::{Encodes, Memory, Spec};
use fl_report::size;
use serde::Serialize;

use super::{Line, Memories};

/// The verdict on the bytes and errors of the updates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// The consequence, in one sentence.
    pub(crate) meaning: String,
    pub(crate) advice: String,
    /// Share of the energy of all updates that would have arrived by the end of the run; 0 or less: nothing usable.
    pub(crate) arrived: Option<f64>,
}

impl Verdict {
    /// The verdict on the summed updates and model updates of `run`. `downloads`: clients that fetch a model update, on
    /// average.
    pub(super) fn of(run: &str, updates: &Line, steps: &Line, downloads: f64) -> Self {
        let was = updates.recorded_framed;
        let other = updates.framed;
        let whole_was = was as f64 + downloads * steps.recorded_framed as f64;
        let whole_other = other as f64 + downloads * steps.framed as f64;
        let times = whole_was / whole_other.max(1.0);
        let arrived = updates.sum_error.map(|error| 1.0 - error);
        let what = match arrived {
            None => "nothing was to be sent".to_owned(),
            Some(arrived) if arrived <= 0.0 => {
                "what would have arrived of them is further from them than nothing at all".to_owned()
            }
            Some(arrived) => {
                let cosine = updates
                    .sum_cosine
                    .map_or(String::new(), |cosine| format!(" (cosine {cosine:.3})"));
                format!(
                    "{:.1} % of their energy would have arrived by the end{cosine}",
                    100.0 * arrived
                )
            }
        };
        Self {
            meaning: format!(
                "the updates of run {run} would have taken {}, and its steps {}; {what}",
                instead(was, other),
                instead(steps.recorded_framed, steps.framed)
            ),
            advice: advice(times, arrived).to_owned(),
            arrived,
        }
    }
}

/// The bytes of the replay beside those of the run.
fn instead(was: u64, other: u64) -> String {
    let bytes = match was.max(1) as f64 / other.max(1) as f64 {
        times if times >= FEWER => format!("{times:.1} times fewer bytes"),
        times if times > MORE => "about as many bytes".to_owned(),
        times => format!("{:.1} times as many bytes", 1.0 / times.max(1e-9)),
    };
    format!("{} instead of {} ({bytes})", size(other), size(was))
}

/// From this factor on, bytes count as fewer.
const FEWER: f64 = 1.05;
/// Below this factor, bytes count as more.
const MORE: f64 = 1.0 / FEWER;
/// Share of the energy that counts as nearly all.
const NEARLY: f64 = 0.9;
/// Share below which the updates are unusable.
const HALF: f64 = 0.5;

fn advice(times: f64, arrived: Option<f64>) -> &'static str {
    match arrived {
        Some(arrived) if arrived <= 0.0 => "do not use this spec: sending nothing would have been better",
        Some(arrived) if arrived < HALF => {
            "too coarse: most of what was learned would have been lost; give it more bits, or a memory"
        }
        _ if times <= MORE => "no gain: it takes more bytes than the run did",
        _ if times < FEWER => "no gain: it takes as many bytes as the run did",
        Some(arrived) if arrived < NEARLY => {
            "a trade: fewer bytes, but a part of what was learned is lost; what that costs in accuracy takes a run (`fl-sim`)"
        }
        _ => "worth a run: fewer bytes for nearly the same updates; what it costs in accuracy takes a run (`fl-sim`)",
    }
}

/// Differences between replay and run, a sentence each. `recorded`: how the run compressed.
pub(super) fn differences(recorded: &Compression, asked: &Spec, memories: Memories) -> Vec<String> {
    let mut out = Vec::new();
    let of_updates = memories.updates;
    let of_model_updates = memories.model_updates;
    let known = recorded.uplink.memory;
    if known != of_updates {
        out.push(format!(
            "memory of the updates: the run had {}, the replay has {}, which {}",
            full(known),
            of_updates.name(),
            carries(of_updates)
        ));
    }
    if known.info().encodes == Encodes::Momenta && of_updates.info().encodes != Encodes::Momenta {
        out.push(format!(
            "the stored updates are sums of momenta ({}), not updates",
            known.name()
        ));
    }
    let exact = Spec::exact();
    let uplink = &recorded.uplink;
    let is_exact = (&uplink.default, &uplink.small, &uplink.budget) == (&exact.default, &exact.small, &exact.budget)
        && uplink.rules.is_empty();
    if !is_exact {
        out.push(
            "the updates are as the server got them: what the run's compression had left out of them is not there to be \
             encoded"
                .to_owned(),
        );
    }
    let steps = Spec {
        memory: of_model_updates,
        ..asked.clone()
    };
    if steps != recorded.downlink {
        out.push(format!(
            "the steps are encoded by the asked spec too (memory: {}), not by the run's `compression.downlink`",
            of_model_updates.name()
        ));
    }
    out.push("nothing is trained again: after other steps the clients would have learned other updates".to_owned());
    out
}

fn full(memory: Memory) -> String {
    match memory {
        Memory::ErrorFeedback { decay } | Memory::CafeErrorFeedback { decay } if decay.get() != 1.0 => {
            format!("{} with decay {}", memory.name(), decay.get())
        }
        memory => memory.name().to_owned(),
    }
}

fn carries(memory: Memory) -> &'static str {
    let info = memory.info();
    match info.encodes {
        Encodes::Update if info.has_residual => "carries what a frame leaves out to the client's next one",
        Encodes::FromModelUpdate if info.has_residual => {
            "encodes the difference from the run's recorded step before, and carries what a frame leaves out to the client's \
             next one"
        }
        Encodes::FromModelUpdate => "encodes the difference from the run's recorded step before, and carries nothing",
        Encodes::Momenta => "sends sums of momenta, so its errors say little",
        _ => "carries nothing: what a frame leaves out is lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(was: u64, other: u64, error: f64) -> Verdict {
        Verdict::of(
            "digits",
            &Line {
                recorded_framed: was,
                framed: other,
                sum_error: Some(error),
                sum_cosine: Some(0.9),
                ..Line::default()
            },
            &Line::default(),
            0.0,
        )
    }

    #[test]
    fn steps_weigh_as_often_as_they_are_fetched() {
        let line = |was, other, error| Line {
            recorded_framed: was,
            framed: other,
            sum_error: Some(error),
            ..Line::default()
        };
        let of = |downloads| Verdict::of("digits", &line(1000, 1000, 0.01), &line(500, 100, 0.2), downloads);
        assert!(of(0.0).advice.starts_with("no gain"), "{}", of(0.0).advice);
        assert!(of(3.0).advice.starts_with("worth a run"), "{}", of(3.0).advice);
        let meaning = of(3.0).meaning;
        assert!(
            meaning.contains("its steps 100 B instead of 500 B (5.0 times fewer bytes)"),
            "{meaning}"
        );
    }

    #[test]
    fn the_verdict_follows_from_bytes_and_what_arrives() {
        for (was, other, error, advice) in [
            (1000, 100, 0.01, "worth a run"),
            (1000, 100, 0.3, "a trade"),
            (1000, 100, 0.7, "too coarse"),
            (1000, 100, 2.4, "do not use"),
            (1000, 1000, 0.0, "no gain: it takes as many"),
            (1000, 3000, 0.0, "no gain: it takes more"),
            (1000, 3000, 1.0, "do not use"),
        ] {
            let found = verdict(was, other, error);
            assert!(
                found.advice.starts_with(advice),
                "{was} {other} {error}: {}",
                found.advice
            );
        }
        let meaning = verdict(4096, 1024, 0.03).meaning;
        assert_eq!(
            meaning,
            "the updates of run digits would have taken 1.00 KiB instead of 4.00 KiB (4.0 times fewer bytes), and its steps \
             0 B instead of 0 B (about as many bytes); 97.0 % of their energy would have arrived by the end (cosine 0.900)"
        );
        let meaning = verdict(1024, 4096, 2.4).meaning;
        assert!(
            meaning.contains("4.00 KiB instead of 1.00 KiB (4.0 times as many bytes)")
                && meaning.contains("; what would have arrived of them is further"),
            "{meaning}"
        );
    }

    fn memories(updates: Memory, model_updates: Memory) -> Memories {
        Memories { updates, model_updates }
    }

    #[test]
    fn each_difference_from_the_run_is_named() {
        let spec = |text: &str| toml::from_str::<Spec>(text).unwrap();
        let memory = |text: &str| spec(&format!("memory = {text}")).memory;
        let (cafe, feedback) = (memory("'cafe'"), memory("'error-feedback'"));
        let asked = spec("default = { quantize = 'half' }");
        let run = |memory| Compression {
            uplink: Spec {
                memory,
                ..Spec::exact()
            },
            downlink: Spec {
                memory: feedback,
                ..asked.clone()
            },
        };
        let found = differences(&run(cafe), &asked, memories(feedback, feedback));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("memory of the updates: the run had cafe, the replay has error-feedback"));
        assert!(found[1].starts_with("nothing is trained again"));
        let same = differences(&run(cafe), &asked, memories(cafe, feedback));
        assert_eq!(same.len(), 1, "{same:?}");
        let decay = memory("{ error-feedback = { decay = 0.5 } }");
        let found = differences(&run(decay), &asked, memories(feedback, feedback));
        assert!(found[0].contains("the run had error-feedback with decay 0.5, the replay has error-feedback"));
        let lossy = Compression {
            uplink: Spec {
                memory: cafe,
                ..asked.clone()
            },
            downlink: Spec::exact(),
        };
        let found = differences(&lossy, &asked, memories(cafe, feedback));
        assert!(
            found[0].starts_with("the updates are as the server got them"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("the steps are encoded by the asked spec too"),
            "{found:?}"
        );
    }
}
