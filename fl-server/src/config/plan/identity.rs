//! The identity of an experiment: all values of the plan that can change its outcome, in canonical form.

use fl_compress::{Average, Digest, Spec};
use fl_proto::{Extra, Training};
use serde::Serialize;

use crate::config::limits::Limits;
use crate::config::plan::cohort::Cohort;
use crate::config::plan::method::MethodSpec;
use crate::config::plan::model::Roles;
use crate::config::plan::rounded::RoundedVersions;
use crate::config::plan::run_plan::RunPlan;

/// The canonical form of a plan. It omits the file of initial weights, because the run's first
/// record has their digest, and where clients get the base from.
#[derive(Serialize)]
struct Identity<'a> {
    version: u32,
    name: &'a str,
    task: &'a str,
    rounds: u64,
    seed: u64,
    evaluate: bool,
    /// Omitted if there is none, as in runs of older programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    average: Option<Average>,
    /// As `average`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_at: Option<f64>,
    cohort: &'a Cohort,
    train: Training,
    /// Omitted if empty, as in runs of older programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a Extra>,
    /// The optimizer; its key is older than its name.
    strategy: &'a MethodSpec,
    /// Left out if it is the mean, which runs have that were begun before there were others.
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregator: Option<&'a MethodSpec>,
    uplink: &'a Spec,
    /// As `average`.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_budget: Option<u64>,
    downlink: &'a Spec,
    /// Omitted at its defaults, so that a run that began before there were limits continues with them. Its earlier rounds are
    /// replayed without limits, because `RoundClosing` records whether they applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<&'a Limits>,
    /// Omitted without any pattern, as in runs that began before there were roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<&'a Roles>,
    /// As `average`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounded: Option<RoundedVersions>,
}

impl RunPlan {
    /// The plan in canonical form (JSON, fields in fixed order), independent of the layout, comments and defaults of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let identity = Identity {
            version: 1,
            name: self.name.as_str(),
            task: &self.task,
            rounds: self.rounds,
            seed: self.seed,
            evaluate: self.evaluate,
            average: self.average,
            stop_at: self.stop_at,
            cohort: &self.cohort,
            train: self.training,
            extra: Some(&self.extra).filter(|extra| !extra.is_empty()),
            strategy: &self.optimizer,
            aggregator: Some(&self.aggregator).filter(|aggregator| aggregator.name() != "mean"),
            uplink: &self.uplink,
            run_budget: self.run_budget,
            downlink: &self.downlink,
            limits: Some(&self.limits).filter(|limits| **limits != Limits::default()),
            roles: Some(&self.roles).filter(|roles| !roles.is_default()),
            rounded: self.rounded,
        };
        serde_json::to_vec(&identity).expect("names, numbers and enums are always JSON")
    }

    /// Digest of [`RunPlan::to_bytes`]: two files with the same digest describe the same experiment.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }
}
