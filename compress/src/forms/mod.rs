//! TOML values with several forms, for the slots of a spec: a name or a table ([`choice`]), a number or a table
//! ([`short`]), a number or a rule ([`rule`]). A refusal lists the accepted forms.

pub(crate) mod choice;
pub(crate) mod methods;
pub(crate) mod rule;
pub(crate) mod short;
