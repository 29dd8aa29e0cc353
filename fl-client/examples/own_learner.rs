//! A model and data of one's own: linear regression by hand, on readings that a device made itself.
//!
//! ```text
//! cargo run -p fl-client --example own_learner -- 127.0.0.1:7070 thermometer-3/
//! ```
//!
//! The folder is what `fl-server issue thermometer-3` made. The server's run has `task = "thermometer"` and starts from a
//! safetensors file with the two tensors below.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fl_client::{ClientConfig, Evaluation, Fit, FitPlan, Learner, Outcome, Tasks};
use fl_compress::Layout;
use fl_proto::{Issued, Length};

/// Predicts `y = weight . x + bias` from three readings.
struct Regression {
    layout: Arc<Layout>,
    /// Bias, then weights: tensors are sorted by name.
    weights: [f32; 4],
    examples: Vec<([f32; 3], f32)>,
}

impl Regression {
    fn new(device: u64) -> Result<Self, fl_compress::Error> {
        let layout = Arc::new(Layout::new([("linear.bias", vec![1]), ("linear.weight", vec![1, 3])])?);
        Ok(Self {
            layout,
            weights: [0.0; 4],
            examples: (0..200).map(|i| reading(device, i)).collect(),
        })
    }

    fn error(&self, (x, y): &([f32; 3], f32)) -> f32 {
        let [bias, weight @ ..] = &self.weights;
        bias + weight.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() - y
    }
}

impl Learner for Regression {
    fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        self.weights = weights.try_into()?;
        Ok(())
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        let rate = plan.training.learning_rate_in(plan.round, plan.rounds);
        let epochs = match plan.training.length {
            Length::Epochs(epochs) => u64::from(epochs),
            Length::Steps(steps) => u64::from(steps).div_ceil(self.examples.len() as u64),
        };
        let mut loss = 0.0;
        for epoch in 0..epochs {
            plan.progress.set(epoch, epochs);
            anyhow::ensure!(!plan.progress.stopped(), "the round is over");
            loss = 0.0;
            for at in 0..self.examples.len() {
                let example = self.examples[at];
                let error = self.error(&example);
                self.weights[0] -= rate * error;
                self.weights[1..]
                    .iter_mut()
                    .zip(example.0)
                    .for_each(|(w, x)| *w -= rate * error * x);
                loss += f64::from(error * error);
            }
        }
        Ok(Fit::new(self.examples.len() as u64, loss / self.examples.len() as f64))
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        out.copy_from_slice(&self.weights);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        let errors: Vec<f32> = self.examples.iter().map(|example| self.error(example)).collect();
        let loss = errors.iter().map(|e| f64::from(e * e)).sum::<f64>() / errors.len() as f64;
        let correct = errors.iter().filter(|e| e.abs() < 0.1).count() as f64;
        Ok(Some(Evaluation::new(errors.len() as u64, loss, correct)))
    }
}

/// The `i`-th reading of a device: three numbers in [-1, 1) and what they should give.
fn reading(device: u64, i: u64) -> ([f32; 3], f32) {
    let x = [1, 2, 3].map(|k| {
        let hash = (device * 1_000_003 + i * 7919 + k).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 40) as f32 / 8_388_608.0 - 1.0
    });
    (x, 0.5 * x[0] - 0.25 * x[1] + x[2] + 0.1)
}

/// Takes part in the rounds of the run at `server` until it is over. `folder`: what `fl-server issue` made.
pub async fn take_part(server: &str, folder: &Path, device: u64) -> Result<Outcome, Box<dyn Error>> {
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).map_err(|e| format!("{name} in {}: {e}", folder.display()));
    let own = Issued {
        certificate: read("client.pem")?,
        key: read("client.key")?,
    };
    let config = ClientConfig::new(server, read("authority.pem")?, own, folder.join("state"));
    let tasks = Tasks::new().with("thermometer", Box::new(Regression::new(device)?));
    let stop = async {
        // Without a way to hear of Ctrl-C the program simply runs on.
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(fl_client::run(config, tasks, |event| println!("{event:?}"), stop).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: own_learner HOST:PORT FOLDER".into());
    };
    println!("{:?}", take_part(&server, Path::new(&folder), 3).await?);
    Ok(())
}
