//! A method that a plan chooses by name, with its numbers: the `[optimizer]` and `[aggregator]` tables.
//!
//! The plan knows what the layer of the model declares of a method: its name, its keys and what it asks of the plan.
//! Constructors stay in `model`, which this layer does not import.

use std::any::Any;
use std::fmt;

use fl_compress::Spec;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::config::plan::error::{PlanError, value};

/// One number of a method.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// Taken where the run.toml does not have the key. Within `range`.
    pub default: f32,
    pub range: Range,
    /// What the number does, as one line for people.
    pub about: &'static str,
}

/// The values that a key may have; none is infinite or NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Above 0.
    Positive,
    /// From 0 to below the bound.
    Below(f32),
    /// From the first to the second bound.
    Within(f32, f32),
}

impl Range {
    fn holds(self, value: f32) -> bool {
        match self {
            Self::Positive => value.is_finite() && value > 0.0,
            Self::Below(bound) => (0.0..bound).contains(&value),
            Self::Within(least, most) => (least..=most).contains(&value),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Positive => f.write_str("finite and above 0"),
            Self::Below(bound) => write!(f, "at least 0 and below {bound}"),
            Self::Within(least, most) => write!(f, "from {least:?} to {most:?}"),
        }
    }
}

/// How far a method can enlarge values. With it the server refuses updates that could leave the range of `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// No value of the result has a magnitude above `gain` times the largest magnitude that the method has ever been given,
    /// plus `constant`.
    pub gain: f64,
    /// Largest magnitude of a result that does not depend on the size of the inputs, such as a sign times a learning rate.
    pub constant: f64,
    /// Inputs up to this magnitude keep every intermediate value and the state of the method finite.
    pub largest_input: f64,
}

impl Bound {
    /// Of a method whose result is at most `gain` times its largest input.
    pub const fn gain(gain: f64) -> Self {
        Self {
            gain,
            constant: 0.0,
            largest_input: f64::INFINITY,
        }
    }

    /// Of a method whose result is at most `constant`, whatever its inputs.
    pub const fn constant(constant: f64) -> Self {
        Self {
            constant,
            ..Self::gain(0.0)
        }
    }
}

/// What is known of a method without running it.
#[derive(Debug)]
pub struct MethodInfo {
    /// The value of the table's key `name`.
    pub name: &'static str,
    /// What the method does and where it comes from, as one line for people.
    pub about: &'static str,
    /// The other keys of the table.
    pub keys: &'static [Key],
    /// How far the method enlarges values in a run of so many rounds.
    pub bound: fn(&MethodSpec, rounds: u64) -> Bound,
    /// Whether the method works on updates with this codec; if not, why, and what to do.
    pub accepts: fn(uplink: &Spec) -> Result<(), String>,
}

/// For [`MethodInfo::accepts`]: every codec will do.
pub fn any_uplink(_: &Spec) -> Result<(), String> {
    Ok(())
}

/// The methods that a plan may name, each with its defaults. The first of a list is the default.
#[derive(Debug, Clone)]
pub struct Catalog {
    pub optimizers: Vec<MethodSpec>,
    pub aggregators: Vec<MethodSpec>,
}

/// A method with its numbers, all of them in range.
#[derive(Debug, Clone)]
pub struct MethodSpec {
    info: &'static MethodInfo,
    /// The registered method with its constructor, whose type only its own layer knows.
    method: &'static (dyn Any + Send + Sync),
    /// In the order of `info.keys`.
    numbers: Vec<f32>,
}

impl MethodSpec {
    /// The method with the default of every key. `method`: the registered method, for [`MethodSpec::method`].
    pub(crate) fn new(info: &'static MethodInfo, method: &'static (dyn Any + Send + Sync)) -> Self {
        let numbers = info.keys.iter().map(|key| key.default).collect();
        Self { info, method, numbers }
    }

    /// The registered method, if it is of this type.
    pub(crate) fn method<T: Any>(&self) -> Option<&'static T> {
        self.method.downcast_ref()
    }

    pub fn info(&self) -> &'static MethodInfo {
        self.info
    }

    /// The method with another number.
    ///
    /// # Errors
    /// A text if the method has no such key or the number is not in its range.
    pub fn with(mut self, key: &str, number: f32) -> Result<Self, String> {
        let Some(at) = self.info.keys.iter().position(|known| known.name == key) else {
            let keys: Vec<_> = self.info.keys.iter().map(|key| key.name).collect();
            return Err(format!("{} has no such key; it has: {}", self.name(), keys.join(", ")));
        };
        let range = self.info.keys[at].range;
        if !range.holds(number) {
            return Err(format!("must be {range}"));
        }
        self.numbers[at] = number;
        Ok(self)
    }

    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// The number of a key.
    ///
    /// # Panics
    /// If the method does not declare the key.
    pub fn number(&self, key: &str) -> f32 {
        let declared = self.info.keys.iter().zip(&self.numbers);
        let found = declared.into_iter().find(|(known, _)| known.name == key);
        *found.expect("the method declares the keys that it reads").1
    }

    /// How far the method enlarges values in a run of so many rounds.
    pub fn bound(&self, rounds: u64) -> Bound {
        (self.info.bound)(self, rounds)
    }

    /// Reads the table `[kind]` of a kind of method; without one, the first of `methods` with its defaults.
    ///
    /// # Errors
    /// `Value` for an unknown method or key, a number that is not in its range, or a method that does not work on updates of
    /// the codec `uplink`.
    pub(super) fn read(
        kind: &str,
        table: Option<&toml::Table>,
        methods: &[Self],
        uplink: &Spec,
    ) -> Result<Self, PlanError> {
        let names = methods.iter().map(Self::name).collect::<Vec<_>>().join(", ");
        let wanted = match table.map(|table| table.get("name")) {
            None => methods.first().map_or("", Self::name),
            Some(Some(toml::Value::String(wanted))) => wanted,
            Some(_) => {
                let rule = format!("must name an {kind}; there are: {names}");
                return Err(value(&format!("{kind}.name"), &"", rule));
            }
        };
        let Some(found) = methods.iter().find(|known| known.name() == wanted) else {
            let rule = format!("unknown {kind} `{wanted}`; there are: {names}");
            return Err(value(&format!("{kind}.name"), &wanted, rule));
        };
        let mut spec = found.clone();
        for (key, found) in table.into_iter().flatten().filter(|(key, _)| *key != "name") {
            let path = format!("{kind}.{key}");
            let number = match found {
                toml::Value::Float(number) => *number as f32,
                toml::Value::Integer(number) => *number as f32,
                _ => return Err(value(&path, found, "must be a number".to_owned())),
            };
            spec = spec.with(key, number).map_err(|rule| value(&path, found, rule))?;
        }
        (spec.info.accepts)(uplink).map_err(|rule| value(&format!("{kind}.name"), &spec.name(), rule))?;
        Ok(spec)
    }
}

impl PartialEq for MethodSpec {
    fn eq(&self, other: &Self) -> bool {
        (self.name(), &self.numbers) == (other.name(), &other.numbers)
    }
}

/// The name, then the numbers in the order in which the method declares them: a part of the plan's identity.
impl Serialize for MethodSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.numbers.len()))?;
        map.serialize_entry("name", self.name())?;
        for (key, number) in self.info.keys.iter().zip(&self.numbers) {
            map.serialize_entry(key.name, number)?;
        }
        map.end()
    }
}
