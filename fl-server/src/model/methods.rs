//! The optimizers and aggregators that plans may name: those of this program, and those that a user registers.

use std::path::Path;

use super::aggregator::{self, AggregatorMethod};
use super::optimizer::{self, OptimizerMethod};
use crate::config::plan::{Catalog, MethodSpec, PlanError, RunPlan};

/// The methods that plans may name. [`Methods::default`] has those of this program.
///
/// A program with a custom method registers it and reads its plan with [`Methods::load`]. The plan, which it gives to
/// [`Serve`](crate::Serve), then has the method:
///
/// ```
/// use std::path::Path;
///
/// use fl_server::model::{Methods, OptimizerMethod, ServerOptimizer};
/// use fl_server::plan::{Bound, Key, MethodInfo, Range, any_uplink};
///
/// /// Ignores changes below a threshold.
/// static QUIET: OptimizerMethod = OptimizerMethod {
///     info: MethodInfo {
///         name: "quiet",
///         about: "the aggregate without its small values",
///         keys: &[Key { name: "below", default: 1e-4, range: Range::Positive, about: "values below it become 0" }],
///         bound: |_, _| Bound::gain(1.0),
///         accepts: any_uplink,
///     },
///     build: |spec, _len| Box::new(Quiet { below: spec.number("below") }),
/// };
///
/// #[derive(Debug)]
/// struct Quiet { below: f32 }
///
/// impl ServerOptimizer for Quiet {
///     fn update(&mut self, _round: u64, aggregate: &mut [f32]) {
///         aggregate.iter_mut().filter(|value| value.abs() < self.below).for_each(|value| *value = 0.0);
///     }
///     fn save(&self, _out: &mut Vec<u8>) {}
///     fn load(&mut self, _bytes: &[u8]) -> Result<(), String> { Ok(()) }
/// }
///
/// let methods = Methods::default().with_optimizer(&QUIET);
/// let plan = methods.plan(
///     r#"
///         name = "r"
///         task = "t"
///         rounds = 2
///         model = "m.safetensors"
///         [cohort]
///         min = 2
///         target = 3
///         [optimizer]
///         name = "quiet"
///         below = 0.001
///     "#,
///     Path::new(""),
/// )?;
/// assert_eq!(plan.optimizer.number("below"), 0.001);
/// # Ok::<(), fl_server::plan::PlanError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Methods(Catalog);

impl Default for Methods {
    fn default() -> Self {
        let optimizers = optimizer::METHODS.iter();
        let aggregators = aggregator::METHODS.iter();
        Self(Catalog {
            optimizers: optimizers
                .map(|method| MethodSpec::new(&method.info, *method))
                .collect(),
            aggregators: aggregators
                .map(|method| MethodSpec::new(&method.info, *method))
                .collect(),
        })
    }
}

impl Methods {
    /// Registers an optimizer. One of the same name is replaced.
    #[must_use]
    pub fn with_optimizer(mut self, method: &'static OptimizerMethod) -> Self {
        register(&mut self.0.optimizers, MethodSpec::new(&method.info, method));
        self
    }

    /// Registers an aggregator. One of the same name is replaced.
    #[must_use]
    pub fn with_aggregator(mut self, method: &'static AggregatorMethod) -> Self {
        register(&mut self.0.aggregators, MethodSpec::new(&method.info, method));
        self
    }

    /// As [`RunPlan::from_toml`], with these methods.
    ///
    /// # Errors
    /// As [`RunPlan::from_toml`].
    pub fn plan(&self, text: &str, base: &Path) -> Result<RunPlan, PlanError> {
        RunPlan::from_toml_with(text, base, &self.0)
    }

    /// As [`RunPlan::load`], with these methods.
    ///
    /// # Errors
    /// As [`RunPlan::load`].
    pub fn load(&self, text: &str, base: &Path) -> Result<RunPlan, PlanError> {
        RunPlan::load_with(text, base, &self.0)
    }

    /// The optimizers, the default first.
    pub fn optimizers(&self) -> impl Iterator<Item = MethodSpec> + '_ {
        self.0.optimizers.iter().cloned()
    }

    /// The aggregators, the default first.
    pub fn aggregators(&self) -> impl Iterator<Item = MethodSpec> + '_ {
        self.0.aggregators.iter().cloned()
    }
}

fn register(methods: &mut Vec<MethodSpec>, method: MethodSpec) {
    match methods.iter_mut().find(|known| known.name() == method.name()) {
        Some(known) => *known = method,
        None => methods.push(method),
    }
}

impl RunPlan {
    /// Reads a run.toml that names methods of this program; if it has no seed, reads the seed in the notes of the initial
    /// weights. Paths are relative to `base`.
    ///
    /// # Errors
    /// As [`RunPlan::from_toml`]; `Value` if there is no seed and the file of initial weights cannot be read.
    pub fn load(text: &str, base: &Path) -> Result<Self, PlanError> {
        Methods::default().load(text, base)
    }

    /// Reads a run.toml that names methods of this program, and no other file; without a seed, the seed is 0. Paths are relative
    /// to `base`.
    ///
    /// # Errors
    /// `Syntax` with line and column, or `Value` with key, value and rule.
    pub fn from_toml(text: &str, base: &Path) -> Result<Self, PlanError> {
        Methods::default().plan(text, base)
    }
}
