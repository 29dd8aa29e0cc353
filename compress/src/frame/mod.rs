//! Frames. A frame is one encoded update: a header, then one section per tensor or group of merged tensors.

pub(crate) mod decoded;
pub(crate) mod groups;
pub(crate) mod header;
pub(crate) mod measuring;
mod values;
pub(crate) mod view;
