//! Bits by the price of a bit (`bits = { by = "oracle" | "learned" }`).
//!
//! Both minimize, for each section l, `w_l D_l(b) / E + lambda R_l(b) / (32 n)` over the bits b, with `D` the squared error, `R`
//! the coded bits, `w` the weight of the section, `E` the weighted energy and n the values of all these sections. The multiplier
//! follows the coded rate of each frame towards the target.
//!
//! The oracle measures `D` and `R` of every choice on the whole section. The other way predicts them: up to a factor the cost is
//! `d(b) + exp(-u) r(b) / 32`, with `d` the relative error and `r` the bits per value, which a network predicts from the shape
//! of the distribution, and u the energy per value relative to lambda. The network is trained on samples: of all sections in the
//! first frames, then of one section in turn, so seldom that measuring stays a small part of encoding.

use serde::{Deserialize, Serialize};

use crate::encoder::bits_curve::{BitsCurve, COUNT, FEATURES, cheapest, costs, is_kept, measure};
use crate::encoder::task::EncodeTask;
use crate::error::Error;
use crate::math;
use crate::quantize::numbers::sum_of_squares;
use crate::rules::bits::{BitsBy, CHOICES, PricedBits};
use crate::rules::network::Network;
use crate::section::input::{EncodedSection, Input};
use crate::threads;

// Frames that measure samples of all sections.
const WARM_UP: u32 = 2;
// Most values of a sample, in those frames and later.
const SAMPLES: [usize; 2] = [4096, 1024];
// Share of the values that may be measured per frame after the warm-up, each choice counted.
const MEASURED: f64 = 0.04;
// Training steps per frame during the warm-up; afterwards one.
const STEPS: usize = 50;
// Most sections of a training step.
const EXAMPLES: usize = 32;
// Change of the logarithm of lambda for a rate that is off by a factor of e.
const GAIN: f64 = 1.5;

/// Chooses bits, and learns from what it measures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pricing {
    rule: PricedBits,
    state: PricingState,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PricingState {
    seed: u32,
    frames: u32,
    log_lambda: f64,
    /// The measurement of each section; with a network, the moving average of its samples.
    seen: Vec<Option<BitsCurve>>,
    network: Option<Network<FEATURES, { 2 * COUNT }>>,
}

impl Pricing {
    pub(crate) fn new(rule: PricedBits, count: usize) -> Self {
        let state = PricingState {
            seed: rule.seed,
            frames: 0,
            log_lambda: math::ln(128.0) - 2.0 * std::f64::consts::LN_2 * rule.target,
            seen: vec![None; count],
            network: (rule.by == BitsBy::Learned).then(|| Network::new(rule.seed.into())),
        };
        Self { rule, state }
    }

    pub(crate) fn state(&self) -> &PricingState {
        &self.state
    }

    /// Continues from a saved state; from what fits, if the spec has other sections, or a network now.
    ///
    /// # Errors
    /// `NotFinite`; `Mismatch` for a network of another size, or if both have a network of different seeds.
    pub(crate) fn resume(&mut self, saved: PricingState) -> Result<(), Error> {
        let what = "the state's rule for `bits`";
        if !(saved.log_lambda.is_finite() && saved.seen.iter().flatten().all(BitsCurve::is_finite)) {
            return Err(Error::NotFinite(what.to_owned()));
        }
        saved.network.as_ref().map_or(Ok(()), Network::check)?;
        let own = &mut self.state;
        if own.network.is_some() && saved.network.is_some() && own.seed != saved.seed {
            return Err(Error::Mismatch(format!(
                "the state's network for `bits` began with seed {}, the spec requires {}; start with a new state",
                saved.seed, own.seed
            )));
        }
        // A new network begins with samples of all sections.
        let is_new_network = own.network.is_some() && saved.network.is_none();
        own.frames = if is_new_network { 0 } else { saved.frames };
        own.log_lambda = saved.log_lambda.clamp(-40.0, 40.0);
        if saved.seen.len() == own.seen.len() {
            own.seen = saved.seen;
        }
        if own.network.is_some() && saved.network.is_some() {
            own.network = saved.network;
        }
        Ok(())
    }

    pub(crate) fn choose(&mut self, mut ruled: Vec<&mut EncodeTask<'_>>, threads: usize) -> Result<(), Error> {
        let energies: Vec<f64> = ruled
            .iter()
            .map(|task| task.weight * sum_of_squares(task.input.tensor.values))
            .collect();
        let values: usize = ruled.iter().map(|task| task.input.tensor.values.len()).sum();
        let density = energies.iter().sum::<f64>() / values.max(1) as f64;
        let len = |task: &EncodeTask<'_>| task.input.tensor.values.len();
        // Infinite for a section of zeros, for which no choice matters.
        let levels: Vec<f64> = ruled
            .iter()
            .zip(&energies)
            .map(|(task, energy)| math::ln(energy / len(task) as f64 / density) - self.state.log_lambda)
            .collect();
        let (due, limit) = self.due(&ruled, values);
        let inputs: Vec<(usize, &Input<'_>)> = due.into_iter().map(|at| (at, &ruled[at].input)).collect();
        let start = self.state.frames as usize;
        let measured = threads::map(inputs, threads, |(at, input)| (at, measure(input, limit, start)));
        for (at, measured) in measured {
            let Some(measured) = measured?.filter(BitsCurve::is_finite) else {
                continue;
            };
            match &mut self.state.seen[at] {
                Some(seen) if self.state.network.is_some() => seen.follow(&measured),
                seen => *seen = Some(measured),
            }
        }
        let lens: Vec<usize> = ruled.iter().map(|task| len(task)).collect();
        self.learn(&lens);
        for (at, task) in ruled.iter_mut().enumerate() {
            let u = levels[at];
            let choice = match (&self.state.seen[at], &self.state.network) {
                (Some(seen), Some(network)) if u.is_finite() => {
                    let predicted = network.predict(&seen.features(lens[at]));
                    let (errors, bits) = predicted.split_at(COUNT);
                    let errors: [f64; COUNT] = std::array::from_fn(|at| math::exp(errors[at]));
                    let bits: [f64; COUNT] = std::array::from_fn(|at| bits[at] / std::f64::consts::LN_2);
                    cheapest(&costs(&errors, &bits, u + seen.shift))
                }
                (Some(seen), None) if u.is_finite() => cheapest(&seen.costs(u)),
                _ => 0,
            };
            task.set_bits(CHOICES[choice]);
        }
        self.state.frames = self.state.frames.saturating_add(1);
        Ok(())
    }

    /// The sections to measure in this frame, and the most values of each.
    fn due(&self, ruled: &[&mut EncodeTask<'_>], values: usize) -> (Vec<usize>, usize) {
        if self.state.network.is_none() {
            return ((0..ruled.len()).collect(), usize::MAX);
        }
        if self.state.frames < WARM_UP {
            return ((0..ruled.len()).collect(), SAMPLES[0]);
        }
        let most = (0..ruled.len())
            .map(|at: usize| {
                let input = &ruled[at].input;
                // A reducer other than `keep` has to look at all values once more.
                let reducing = if is_kept(input) { 0 } else { input.tensor.values.len() };
                COUNT * SAMPLES[1].min(input.tensor.values.len()) + reducing
            })
            .max()
            .unwrap_or(0);
        let period = (most as f64 / (MEASURED * values as f64)).ceil().clamp(1.0, 1e6) as usize;
        let frames = self.state.frames as usize;
        let mut due: Vec<usize> = (0..ruled.len()).filter(|&at| self.state.seen[at].is_none()).collect();
        if frames.is_multiple_of(period) {
            due.push(frames / period % ruled.len().max(1));
        }
        due.dedup();
        (due, SAMPLES[1])
    }

    fn learn(&mut self, lens: &[usize]) {
        let Some(network) = &mut self.state.network else { return };
        let known = self.state.seen.iter().zip(lens);
        let known = known.filter_map(|(seen, len)| seen.as_ref().map(|seen| (seen.features(*len), seen.targets())));
        let known: Vec<_> = known.collect();
        if known.is_empty() {
            return;
        }
        if self.state.frames == 0 {
            network.center(&std::array::from_fn(|at| {
                known.iter().map(|(_, targets)| targets[at]).sum::<f64>() / known.len() as f64
            }));
        }
        let steps = if self.state.frames < WARM_UP { STEPS } else { 1 };
        for step in 0..steps {
            let first = (self.state.frames as usize * steps + step) * EXAMPLES;
            let count = EXAMPLES.min(known.len());
            let examples: Vec<_> = (first..first + count).map(|at| known[at % known.len()]).collect();
            network.train(&examples);
        }
    }

    /// Moves the multiplier after the sections with the rule were coded.
    pub(crate) fn coded<'e>(&mut self, ruled: impl Iterator<Item = &'e EncodedSection>) {
        let mut bytes = 0;
        let mut values = 0;
        for section in ruled {
            bytes += section.bytes.len();
            values += section.stages.fp32 as usize / 4;
        }
        let rate = 8.0 * bytes as f64 / values.max(1) as f64;
        let change = (GAIN * math::ln(rate / self.rule.target)).clamp(-1.0, 1.0);
        if change.is_finite() {
            self.state.log_lambda = (self.state.log_lambda + change).clamp(-40.0, 40.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use crate::layout::Shape;
    use crate::rng::KeyedRng;

    use super::*;
    use crate::code::method::CodeSpec;
    use crate::layout::Role;
    use crate::quantize::QuantizeSpec;
    use crate::reduce::method::TensorValues;
    use crate::reduce::{keep, top_k};
    use crate::rules::bits::BitsRule;
    use crate::rules::samples::{gaussian, laplace, student};

    const LENS: [usize; 9] = [3000, 12_000, 5000, 800, 20_000, 9000, 2500, 16_000, 6000];

    /// Tensors of three distributions and of energies that differ by factors of a thousand.
    fn update(round: u64) -> Vec<Vec<f32>> {
        let tensor = |(at, &len): (usize, &usize)| {
            let seed = round * 31 + at as u64;
            let mut values = match at % 3 {
                0 => student(len, seed),
                1 => laplace(len, seed),
                _ => gaussian(len, seed),
            };
            let scale = (3.0 * ((at * 7 % 9) as f32 / 8.0 - 0.5)).exp2() * (1.0 + 0.1 * (round as f32).sin());
            values.iter_mut().for_each(|value| *value *= scale);
            values
        };
        LENS.iter().enumerate().map(tensor).collect()
    }

    fn uniform(text: &str) -> QuantizeSpec {
        let spec: crate::Spec = toml::from_str(&format!("default = {{ quantize = {{ uniform = {text} }} }}")).unwrap();
        spec.default.quantize
    }

    fn input(values: &[f32], quantize: QuantizeSpec, code: CodeSpec, share: Option<usize>) -> Input<'_> {
        Input {
            tensor: TensorValues {
                values,
                squared_gradients: None,
                residual: None,
                shape: Shape::row(values.len()),
                places: 1,
                quantize,
                rng: KeyedRng::new(1, 0),
                unbiased: false,
                threads: 1,
            },
            chosen: share.map_or_else(keep::all, |share| top_k::largest(values.len() / share, None)),
            leading: None,
            code,
        }
    }

    /// The total cost of the choices over that of the best ones, and the coded bits per value, in each of `rounds`.
    fn regret(rule: &str, code: CodeSpec, share: Option<usize>, rounds: Range<u64>) -> Vec<(f64, f64)> {
        let quantize = uniform(rule);
        let QuantizeSpec::Uniform(uniform) = quantize else {
            panic!("quantizer")
        };
        let Some(BitsRule::Priced(rule)) = uniform.rule() else {
            panic!("rule")
        };
        let mut controller = Pricing::new(rule, LENS.len());
        let mut out = Vec::new();
        for round in 0..rounds.end {
            let update = update(round);
            let inputs: Vec<Input<'_>> = update
                .iter()
                .map(|values| input(values, quantize, code, share))
                .collect();
            let mut learned = vec![(None, 1.0); inputs.len()];
            let tasks = inputs.iter().zip(&mut learned);
            let mut tasks: Vec<EncodeTask<'_>> = tasks
                .map(|(input, (warm, ratio))| EncodeTask {
                    input: input.clone(),
                    role: Role::Trained,
                    weight: 1.0,
                    warm,
                    ratio,
                    components: None,
                })
                .collect();
            let log_lambda = controller.state.log_lambda;
            controller.choose(tasks.iter_mut().collect(), 1).unwrap();
            let sections: Vec<EncodedSection> = tasks
                .iter()
                .map(|task| crate::section::encode::encode(&task.input, &mut None).unwrap())
                .collect();
            controller.coded(sections.iter());
            if round < rounds.start {
                continue;
            }
            let energies: Vec<f64> = update.iter().map(|values| sum_of_squares(values)).collect();
            let (values, energy): (usize, f64) = (LENS.iter().sum(), energies.iter().sum());
            let (mut chosen, mut best) = (0.0, 0.0);
            for ((task, input), (own, len)) in tasks.iter().zip(&inputs).zip(energies.iter().zip(LENS)) {
                let measured = measure(input, usize::MAX, 0).unwrap().unwrap();
                let u = (own / len as f64 / (energy / values as f64)).ln() - log_lambda;
                let QuantizeSpec::Uniform(uniform) = task.input.tensor.quantize else {
                    panic!("quantizer")
                };
                let choice = CHOICES.iter().position(|&bits| bits == uniform.bits()).unwrap();
                let costs = measured.costs(u);
                chosen += own * costs[choice];
                best += own * costs[cheapest(&costs)];
            }
            let bytes: usize = sections.iter().map(|section| section.bytes.len()).sum();
            out.push((chosen / best - 1.0, 8.0 * bytes as f64 / values as f64));
        }
        out
    }

    fn means(all: &[(f64, f64)]) -> (f64, f64) {
        let sum = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (sum.0 / all.len() as f64, sum.1 / all.len() as f64)
    }

    #[test]
    fn learned_bits_regret_at_most_five_percent_of_the_oracle() {
        for (target, code, share) in [
            (2.0, CodeSpec::Rans, None),
            (3.0, CodeSpec::Pack, None),
            (0.25, CodeSpec::Rans, Some(50)),
        ] {
            let rule = format!("{{ bits = {{ by = 'learned', target = {target} }}, block = 1024 }}");
            let (regret, rate) = means(&regret(&rule, code, share, 8..20));
            println!("target {target}: regret {regret:.4}, rate {rate:.3}");
            assert!(regret <= 0.05, "target {target}: regret {regret}");
            assert!((rate / target - 1.0).abs() < 0.15, "target {target}: rate {rate}");
        }
    }

    #[test]
    fn the_oracle_has_no_regret_and_meets_the_target() {
        let rule = "{ bits = { by = 'oracle', target = 2.5 } }";
        for (regret, rate) in regret(rule, CodeSpec::Rans, None, 8..12) {
            assert!(
                regret.abs() < 1e-9 && (rate / 2.5 - 1.0).abs() < 0.15,
                "{regret} {rate}"
            );
        }
    }
}
