//! The stored metadata of a run: task, layout and compression.

use std::path::Path;

use fl_compress::{Digest, Layout, Spec, TensorSpec};
use serde::{Deserialize, Serialize};

use crate::config::plan::RunPlan;
use crate::model::persistence_error::PersistenceError;
use crate::model::space::{StoredSpace, model_values};
use crate::model::stored_layout::{self, StoredTensor, stored};
use crate::storage::store::{RunStore, StoreError};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compression {
    pub(crate) uplink: Spec,
    pub(crate) downlink: Spec,
}

/// The tensors of a model that do not travel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Aside {
    /// Local and frozen ones, sorted by name.
    pub(crate) tensors: Vec<TensorSpec>,
    /// Digest of the frozen ones, if there are any, as [`fl_compress::weights::FilePlan::digest`] computes it.
    pub(crate) base: Option<Digest>,
}

/// Facts of a run that its records lack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunMetadata {
    pub(crate) task: String,
    pub(crate) rounds: u64,
    /// Learner that made the first weights, if their file names it.
    pub(crate) learner: Option<String>,
    /// The model's tensors that travel.
    pub(crate) layout: Vec<StoredTensor>,
    /// The others: local and frozen ones, sorted by name.
    pub(crate) aside: Vec<StoredTensor>,
    /// Digest of the blob with the frozen tensors, if there are any.
    pub(crate) base: Option<String>,
    /// Where the tensors that travel are those of z in `w = w0 + P z`, and the frozen ones are w0.
    pub(crate) space: Option<StoredSpace>,
    /// Digest of the snapshot frame of version 0.
    pub(crate) initial: String,
    /// Random number in hexadecimal, drawn at the start of the run: distinguishes runs of the same name.
    pub(crate) instance: String,
    pub(crate) compression: Compression,
}

const FACTS: &str = "facts";

/// The entry of the store for the run.toml with which the run began.
pub(crate) const PLAN: &str = "plan";

/// The plan that is stored with a run, or why it is not known.
pub(crate) type StoredPlan = Result<RunPlan, String>;

/// Reads the plan that is stored with a run. `begun`: its digest, as recorded.
pub(crate) fn stored_plan(run: &RunStore, begun: Digest) -> Result<StoredPlan, StoreError> {
    let text = String::from_utf8(run.meta(PLAN)?.unwrap_or_default());
    let plan = text.map_err(|e| e.to_string());
    let plan = plan.and_then(|text| RunPlan::from_toml(&text, Path::new("")).map_err(|e| e.to_string()));
    Ok(match plan {
        Ok(plan) if plan.digest() == begun => Ok(plan),
        Ok(_) => {
            Err("this program reads another plan in the stored run.toml; use the program that wrote it".to_owned())
        }
        Err(why) => Err(format!(
            "the stored run.toml cannot be read: {why}; give it with --plan"
        )),
    })
}

impl RunMetadata {
    pub(crate) fn new(plan: &RunPlan, layout: &Layout, aside: Aside, initial: Digest, instance: Digest) -> Self {
        Self {
            task: plan.task.clone(),
            rounds: plan.rounds,
            learner: None,
            layout: stored(layout),
            aside: aside.tensors.into_iter().map(StoredTensor).collect(),
            base: aside.base.map(|base| base.to_string()),
            space: StoredSpace::of(plan),
            initial: initial.to_string(),
            instance: instance.to_string(),
            compression: Compression {
                uplink: plan.uplink.clone(),
                downlink: plan.downlink.clone(),
            },
        }
    }

    pub(crate) fn store(&self, run: &RunStore) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(self).expect("strings and numbers are always JSON");
        run.set_meta(FACTS, &bytes)
    }

    /// The facts of a run; `None` before its first start was complete.
    pub(crate) fn load(run: &RunStore) -> Result<Option<Self>, PersistenceError> {
        let Some(bytes) = run.meta(FACTS)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&bytes);
        parsed
            .map(Some)
            .map_err(|e| PersistenceError::stored(format_args!("facts of run {}", run.name()), e))
    }

    pub(crate) fn layout(&self) -> Result<Layout, PersistenceError> {
        stored_layout::layout(&self.layout).map_err(|e| PersistenceError::stored("stored layout", e))
    }

    /// Values of the model, of which `layout` travels.
    pub(crate) fn model_values(&self, layout: &Layout) -> Result<usize, PersistenceError> {
        Ok(model_values(self.space, layout, &self.aside()?.tensors))
    }

    /// The tensors that do not travel.
    pub(crate) fn aside(&self) -> Result<Aside, PersistenceError> {
        let base = self.base.as_ref().map(|base| base.parse::<Digest>());
        let base = base.transpose();
        Ok(Aside {
            tensors: self.aside.iter().map(|tensor| tensor.0.clone()).collect(),
            base: base.map_err(|e| PersistenceError::stored("stored digest of the base", e))?,
        })
    }
}
