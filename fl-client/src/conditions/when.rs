//! `[when]` of client.toml, checked.

use std::time::Duration;

use super::hours::Hours;
use super::surroundings::Surroundings;

/// The conditions under which a client may train, and where they are read. By default there are none.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    /// The device is not on battery.
    pub on_mains: bool,
    /// The battery is charged to more than so many percent. Fulfilled without a battery.
    pub battery_above: Option<f64>,
    /// The connection with the default route is not metered.
    pub unmetered: bool,
    /// Load for each processor without this client's own.
    pub idle_load_below: Option<f64>,
    /// Free memory in bytes.
    pub free_memory_above: Option<u64>,
    /// Degrees Celsius of the hottest thermal zone.
    pub temperature_below: Option<f64>,
    /// Windows of local time.
    pub hours: Option<Hours>,
    /// A program with its arguments that exits with code 0 if the client may train; empty for none.
    pub command: Vec<String>,
    /// Whether a condition whose source is missing counts as not fulfilled.
    pub strict: bool,
    /// How often the conditions are read.
    pub every: Duration,
    /// How long the conditions must be fulfilled until a paused client is available again.
    pub settle: Duration,
    /// Longest pause of a training; then the client leaves the round.
    pub max_pause: Duration,
    /// Where the conditions are read.
    pub surroundings: Surroundings,
}

impl Default for When {
    fn default() -> Self {
        Self {
            on_mains: false,
            battery_above: None,
            unmetered: false,
            idle_load_below: None,
            free_memory_above: None,
            temperature_below: None,
            hours: None,
            command: Vec::new(),
            strict: false,
            every: Duration::from_secs(15),
            settle: Duration::from_secs(30),
            max_pause: Duration::from_secs(60),
            surroundings: Surroundings::default(),
        }
    }
}
