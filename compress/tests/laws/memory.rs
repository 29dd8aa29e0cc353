//! Memories other than error feedback: client and server agree after any sequence of acknowledgements, and each memory
//! follows its equations. All numbers are small dyadic fractions, so sums are exact and the tests compare for equality.

use crate::*;

const N: usize = 12;
const VERDICTS: [Ack; 3] = [Ack::Accepted, Ack::Rejected, Ack::Dropped];

fn delta(round: u64) -> Vec<f32> {
    (0..N)
        .map(|at| (unit(round + 7, at) * 64.0).floor() as f32 - 32.0)
        .collect()
}

/// The two largest of `values` (on a tie the lowest index); the others are zero.
fn largest_two(values: &[f32]) -> Vec<f32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()));
    let mut out = vec![0.0; values.len()];
    order[..2].iter().for_each(|&at| out[at] = values[at]);
    out
}

fn add(to: &mut [f32], values: &[f32]) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += value);
}

fn spec(memory: &str) -> String {
    format!("memory = {memory}\ndefault = {{ reduce = {{ top_k = 0.15 }}, code = 'rans' }}")
}

fn verdict(round: u64) -> Ack {
    VERDICTS[(unit(99, round as usize) * 3.0) as usize % 3]
}

fn restarted(encoder: &Encoder, layout: &Arc<Layout>, memory: &str, pending: &Pending) -> (Encoder, Pending) {
    let mut bytes = Vec::new();
    encoder.save(Some(pending), &mut bytes);
    let (encoder, pending) =
        Encoder::load(Arc::clone(layout), &toml::from_str(&spec(memory)).unwrap(), &bytes).unwrap();
    (encoder, pending.unwrap())
}

/// `c = C(delta - g)`; if accepted, `g += c` on both sides.
#[test]
fn ef21_keeps_the_sum_of_what_was_accepted() {
    let layout = row(N);
    let mut encoder = encoder(&layout, &spec("'ef21'"));
    let mut shadow = vec![0.0; N];
    for round in 0..60 {
        let mut pending = encoder.encode(&mut delta(round), UPDATE).unwrap();
        let sent = decode(&layout, &pending.frame);
        assert_eq!(sent, largest_two(&less(&delta(round), &shadow)), "round {round}");
        if round % 7 == 0 {
            (encoder, pending) = restarted(&encoder, &layout, "'ef21'", &pending);
        }
        let verdict = verdict(round);
        encoder.settle(&pending, verdict).unwrap();
        if verdict == Ack::Accepted {
            add(&mut shadow, &sent);
        }
    }
}

#[test]
fn ef21_reaches_an_update_that_stays() {
    let layout = row(N);
    let mut encoder = encoder(&layout, &spec("'ef21'"));
    let (target, mut shadow) = (delta(3), vec![0.0; N]);
    let mut last = dot(&target, &target);
    for _ in 0..6 {
        let pending = encoder.encode(&mut target.clone(), UPDATE).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        add(&mut shadow, &decode(&layout, &pending.frame));
        let left = error(&target, &shadow);
        assert!(left <= (1.0 - 2.0 / N as f64) * last);
        last = left;
    }
    assert_eq!(shadow, target);
}

/// The client sends `C(delta - u)` and the receiver adds the same u, so nothing needs to be rolled back.
#[test]
fn cafe_sends_the_difference_from_the_step_both_sides_have() {
    let layout = row(N);
    let step = encoder(&layout, &spec("'none'"))
        .encode(
            &mut delta(50),
            FrameHeader {
                kind: FrameKind::ModelUpdate,
                ..UPDATE
            },
        )
        .unwrap();
    let step = Frame::parse(&step.frame, &layout).unwrap();
    let mut predictor = vec![0.0; N];
    step.decode(&mut predictor).unwrap();
    let mut encoder = encoder(&layout, &spec("'cafe'"));
    for (round, &verdict) in (0..9).zip(VERDICTS.iter().cycle()) {
        let pending = encoder.encode_against(Some(&step), &mut delta(round), UPDATE).unwrap();
        let frame = Frame::parse(&pending.frame, &layout).unwrap();
        assert_eq!(frame.predictor(), Some(step.id()));
        assert_eq!(
            decode(&layout, &pending.frame),
            largest_two(&less(&delta(round), &predictor))
        );
        encoder.settle(&pending, verdict).unwrap();
        let again = encoder.encode_against(Some(&step), &mut delta(round), UPDATE).unwrap();
        assert_eq!(again.frame, pending.frame);
        encoder.settle(&again, Ack::Dropped).unwrap();
        assert_eq!(encoder.residual(), None);
    }
    let alone = encoder.encode(&mut delta(1), UPDATE).unwrap();
    assert_eq!(Frame::parse(&alone.frame, &layout).unwrap().predictor(), None);
    assert_eq!(decode(&layout, &alone.frame), largest_two(&delta(1)));
}

/// `v = delta - p + e`; the receiver adds `p + C(v)`. Accepted or dropped: `e = v - C(v)`. Rejected: `e = v + p`, since
/// nothing arrives. With and without a predictor, across restarts.
#[test]
fn cafe_with_a_residual_loses_nothing_whatever_the_verdicts() {
    const MEMORY: &str = "['cafe', 'error-feedback']";
    let layout = row(N);
    let header = FrameHeader {
        kind: FrameKind::ModelUpdate,
        ..UPDATE
    };
    let step = |round| {
        encoder(&layout, &spec("'none'"))
            .encode(&mut delta(round), header)
            .unwrap()
    };
    let steps = [step(50), step(51), step(52)];
    let mut encoder = encoder(&layout, &spec(MEMORY));
    let (mut residual, mut owed, mut settled) = (vec![0.0; N], vec![0.0; N], vec![0.0; N]);
    for round in 0..80 {
        let step = steps.get(round as usize % 4);
        let step = step.map(|step| Frame::parse(&step.frame, &layout).unwrap());
        let mut predictor = vec![0.0; N];
        step.iter().for_each(|step| step.decode(&mut predictor).unwrap());
        let mut pending = encoder
            .encode_against(step.as_ref(), &mut delta(round), UPDATE)
            .unwrap();
        let frame = Frame::parse(&pending.frame, &layout).unwrap();
        assert_eq!(frame.predictor(), step.as_ref().map(Frame::id));
        let mut input = less(&delta(round), &predictor);
        add(&mut input, &residual);
        let sent = decode(&layout, &pending.frame);
        assert_eq!(sent, largest_two(&input), "round {round}");
        if round % 7 == 0 {
            (encoder, pending) = restarted(&encoder, &layout, MEMORY, &pending);
        }
        let verdict = verdict(round);
        encoder.settle(&pending, verdict).unwrap();
        add(&mut owed, &delta(round));
        match verdict {
            Ack::Rejected => {
                residual = input;
                add(&mut residual, &predictor);
            }
            Ack::Accepted | Ack::Dropped => {
                residual = less(&input, &sent);
                add(&mut settled, &sent);
                add(&mut settled, &predictor);
            }
        }
        assert_eq!(
            encoder.residual(),
            Some(residual.as_slice()),
            "round {round}, {verdict:?}"
        );
        assert_eq!(less(&owed, &settled), residual);
    }
}

#[test]
fn an_update_that_is_not_finite_leaves_a_predicted_residual_as_it_was() {
    let layout = row(N);
    let mut encoder = encoder(&layout, &spec("['cafe', 'error-feedback']"));
    let step = encoder.encode(&mut delta(50), UPDATE).unwrap();
    encoder.settle(&step, Ack::Accepted).unwrap();
    let step = Frame::parse(&step.frame, &layout).unwrap();
    let before = encoder.residual().unwrap().to_vec();
    for value in [f32::NAN, f32::INFINITY] {
        let refused = encoder.encode_against(Some(&step), &mut [value; N], UPDATE);
        assert!(matches!(refused, Err(Error::NotFinite(_))));
        assert_eq!(encoder.residual().unwrap(), before);
    }
}

/// `m = m / 2 + delta`, `u = u + m`, send `C(u)`; sent values are removed from u, and m is set to zero there.
#[test]
fn dgc_corrects_and_masks_its_momentum() {
    let (layout, memory) = (row(N), "{ dgc = { momentum = 0.5 } }");
    let mut encoder = encoder(&layout, &spec(memory));
    let (mut momentum, mut unsent) = (vec![0.0f32; N], vec![0.0f32; N]);
    for round in 0..16 {
        momentum
            .iter_mut()
            .zip(delta(round))
            .for_each(|(momentum, delta)| *momentum = *momentum / 2.0 + delta);
        add(&mut unsent, &momentum);
        let mut pending = encoder.encode(&mut delta(round), UPDATE).unwrap();
        let sent = decode(&layout, &pending.frame);
        assert_eq!(sent, largest_two(&unsent), "round {round}");
        if round % 5 == 0 {
            (encoder, pending) = restarted(&encoder, &layout, memory, &pending);
        }
        let verdict = verdict(round);
        encoder.settle(&pending, verdict).unwrap();
        if verdict != Ack::Rejected {
            for at in (0..N).filter(|&at| sent[at] != 0.0) {
                unsent[at] -= sent[at];
                momentum[at] = 0.0;
            }
        }
        assert_eq!(encoder.residual(), Some(unsent.as_slice()));
    }
}

#[test]
fn dgc_cuts_a_long_update_to_the_norm_asked() {
    let layout = row(2);
    let spec = "memory = { dgc = { momentum = 0, clip = 2.5 } }\ndefault = {}";
    for (update, out) in [([3.0, -4.0], [1.5, -2.0]), ([0.3, 0.4], [0.3, 0.4])] {
        assert_eq!(once(&layout, spec, &update, 0), out);
    }
}

/// `v = delta + decay * residual`, and the next residual is `v - C(v)`: decoded values plus residual equal the sum of
/// the updates, each decayed once per round that its remainder waits.
#[test]
fn a_decay_fades_only_what_waits() {
    let layout = row(N);
    let mut encoder = encoder(&layout, &spec("{ error-feedback = { decay = 0.5 } }"));
    let mut owed = vec![0.0f32; N];
    for round in 0..12 {
        let input: Vec<f32> = owed
            .iter()
            .zip(delta(round))
            .map(|(owed, delta)| owed / 2.0 + delta)
            .collect();
        let pending = encoder.encode(&mut delta(round), UPDATE).unwrap();
        let sent = decode(&layout, &pending.frame);
        assert_eq!(sent, largest_two(&input));
        encoder.settle(&pending, verdict(round)).unwrap();
        owed = if verdict(round) == Ack::Rejected {
            input
        } else {
            less(&input, &sent)
        };
        assert_eq!(encoder.residual(), Some(owed.as_slice()));
    }
}

#[test]
fn memory_none_loses_what_it_does_not_send() {
    let layout = row(N);
    let mut encoder = encoder(&layout, &spec("'none'"));
    for round in 0..3 {
        let pending = encoder.encode(&mut delta(4), FrameHeader { round, ..UPDATE }).unwrap();
        assert_eq!(decode(&layout, &pending.frame), largest_two(&delta(4)));
        encoder.settle(&pending, Ack::Rejected).unwrap();
    }
}
