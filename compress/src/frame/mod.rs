//! One encoded update: a header, then one section for each tensor or group of small tensors.

pub(crate) mod groups;
pub(crate) mod header;
pub(crate) mod view;
