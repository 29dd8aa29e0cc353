//! TOML values with more than one form, for the slots of a spec: a name or a table ([`choice`]), a number or a table
//! ([`short`]), a number or a rule ([`rule`]). Each refuses other values with the list of its forms.

pub(crate) mod choice;
pub(crate) mod methods;
pub(crate) mod rule;
pub(crate) mod short;
