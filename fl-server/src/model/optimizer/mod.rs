//! Server optimizers: from the aggregate of a round's updates to the model update.

pub(super) mod fedavg;
