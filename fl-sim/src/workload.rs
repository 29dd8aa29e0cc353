//! Learner and data of a simulated federation.

use std::sync::Arc;

use anyhow::Context as _;
use fl_client::{DeviceChoice, Error, Learner, Tasks};
use fl_compress::Layout;
use fl_learn::data::{ClientData, DataSource};
use fl_learn::learners::LearnerChoice;
use serde::{Deserialize, Serialize};

use crate::federation::Member;

/// The task of every simulated run.
pub const TASK: &str = "simulation";

/// A learner, and data shared by the clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The built-in learner.
    pub learner: LearnerChoice,
    /// Number of clients.
    pub clients: u32,
    /// The data of the whole federation; each client gets its part.
    pub data: DataSource,
}

/// Which examples a trial trains on and is evaluated with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Evaluation {
    /// Split and test set as the data source says.
    Given,
    /// The split drawn by this seed, and the test set.
    Test {
        /// Seed of the split.
        seed: u64,
    },
    /// The split drawn by this seed, and a validation part in place of the test set: a share of each client's training examples,
    /// which are not trained on.
    Validation {
        /// Seed of the split and of the validation part.
        seed: u64,
        /// The share, above 0 and below 1.
        share: f64,
    },
}

impl Workload {
    /// The clients, each with its part of the data, loaded when the run starts.
    ///
    /// # Errors
    /// If the data cannot be shared by so many clients.
    pub fn members(&self) -> anyhow::Result<Vec<Member>> {
        self.members_on(DeviceChoice::Cpu, Evaluation::Given)
    }

    /// As [`Workload::members`]; all compute on `device`.
    ///
    /// # Errors
    /// As [`Workload::members`].
    pub fn members_on(&self, device: DeviceChoice, evaluation: Evaluation) -> anyhow::Result<Vec<Member>> {
        (0..self.clients)
            .map(|client| self.member(client, device, evaluation))
            .collect()
    }

    fn member(&self, client: u32, device: DeviceChoice, evaluation: Evaluation) -> anyhow::Result<Member> {
        let learner = self.learner.clone();
        let mut data = self.part(client)?;
        if let Evaluation::Test { seed } | Evaluation::Validation { seed, .. } = evaluation {
            data = data.with_seed(seed);
        }
        let tasks = Tasks::new().with_lazy(TASK, move || {
            let mut data = data.load()?;
            if let Evaluation::Validation { seed, share } = evaluation {
                data = data.validation(share, seed)?;
            }
            learner.build(device, data)
        });
        let name = format!("client-{client:02}").parse()?;
        Ok(Member { name, tasks })
    }

    /// The learner of `client`, its data loaded.
    ///
    /// # Errors
    /// If the data cannot be read or the learner does not suit it.
    pub fn learner(&self, client: u32) -> anyhow::Result<Box<dyn Learner>> {
        self.learner.build(DeviceChoice::Cpu, self.part(client)?.load()?)
    }

    /// The data of the first client. While it is held, the clients of this process share its set instead of reading it anew.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn hold(&self) -> anyhow::Result<ClientData> {
        Ok(self.part(0)?.load()?)
    }

    /// Layout and first weights of the model.
    ///
    /// # Errors
    /// If the data cannot be read or the learner does not suit it.
    pub fn initial(&self, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        let input = self.part(0)?.set().input().context("the first client's data")?;
        let made = self.learner.initial_weights_for(input, seed);
        Ok(made.map_err(|e| Error::Config(format!("{e:#}")))?)
    }

    fn part(&self, client: u32) -> anyhow::Result<DataSource> {
        Ok(self.data.of_client(client, self.clients)?)
    }
}
