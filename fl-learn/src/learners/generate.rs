//! Texts that a language model continues.

use anyhow::ensure;
use candle_core::{Device, Tensor};

use super::trained::TrainedModel;
use crate::data::{Rng, Target};
use crate::ops::Tape;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    /// Logits are divided by this before the softmax, 0 takes the most likely token.
    pub temperature: f64,
    /// Determines what is drawn.
    pub seed: u64,
}

impl TrainedModel {
    /// The `count` tokens that follow `prompt`. Each is predicted from as many tokens before it as the model was built for.
    ///
    /// # Errors
    /// If the model is no language model, the prompt is empty or has a token beyond the vocabulary, or the device fails.
    pub fn generate(&self, prompt: &[u32], count: usize, sampling: Sampling) -> anyhow::Result<Vec<u32>> {
        let input = self.data.train.input();
        ensure!(
            input.target == Target::NextToken,
            "the model predicts no tokens: a text needs `lstm`, `transformer` or `lora`"
        );
        ensure!(!prompt.is_empty(), "the prompt is empty; give at least one token");
        let window = input.shape[2];
        let mut tokens = prompt.to_vec();
        let mut rng = Rng::new(sampling.seed);
        let opened = self.open_untracked()?;
        for _ in 0..count {
            let seen = &tokens[tokens.len().saturating_sub(window)..];
            let x = Tensor::from_slice(seen, (1, seen.len()), &Device::Cpu)?;
            let logits = opened.model().forward(&mut Tape::default(), &x)?;
            let last = logits.get(seen.len() - 1)?.to_vec1::<f32>()?;
            // The model's vocabulary may be padded beyond that of the data.
            let last = &last[..input.classes.min(last.len())];
            tokens.push(choose(last, sampling.temperature, &mut rng));
        }
        Ok(tokens.split_off(prompt.len()))
    }
}

fn choose(logits: &[f32], temperature: f64, rng: &mut Rng) -> u32 {
    let best = logits
        .iter()
        .enumerate()
        .fold(0, |best, (at, logit)| if *logit > logits[best] { at } else { best });
    if temperature <= 0.0 {
        return best as u32;
    }
    let top = f64::from(logits[best]);
    let weights: Vec<f64> = logits
        .iter()
        .map(|logit| ((f64::from(*logit) - top) / temperature).exp())
        .collect();
    let mut left = rng.unit() * weights.iter().sum::<f64>();
    for (at, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return at as u32;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let logits = [0.0, 2.0f32.ln(), f32::NEG_INFINITY];
        let mut rng = Rng::new(1);
        assert_eq!(choose(&logits, 0.0, &mut rng), 1);
        let drawn: Vec<u32> = (0..3000).map(|_| choose(&logits, 1.0, &mut rng)).collect();
        let ones = drawn.iter().filter(|&&token| token == 1).count();
        assert!((1900..2100).contains(&ones) && !drawn.contains(&2), "{ones}");
        let colder = (0..3000).filter(|_| choose(&logits, 0.5, &mut rng) == 1).count();
        assert!((2300..2500).contains(&colder), "{colder}");
    }
}
