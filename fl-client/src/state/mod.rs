//! The client's state on disk: what must not be lost, and what saves a download.
//!
//! ```text
//! state/lock                one process at a time
//! state/current             name of the run joined last
//! state/runs/NAME/memory    residual and pending frame, as they were when the frame was made
//! state/runs/NAME/verdict   the server's answer to that frame; absent until the answer is known
//! state/runs/NAME/model     a model version; fetched again if it is missing or broken
//! state/runs/NAME/partial-frame  the long frame that a fetch is receiving; fetched again if it is missing or broken
//! state/runs/NAME/step      the model update that made that version, if updates are encoded against it; may be missing
//! state/runs/NAME/model-updates/VERSION  the model updates of the last versions, if the run averages versions; may be missing
//! state/runs/NAME/optimizer       moments of the local optimizer, if the run keeps them
//! state/runs/NAME/optimizer-next  those after the training of the frame in `memory`
//! state/runs/NAME/{memory,verdict,step}.new  the file before the last one: the next one is written over it
//! state/aside/NAME-INSTANCE/  the same files of another run of that name
//! state/local/NAME-INSTANCE.safetensors  local tensors of a run that a trainer trains; kept after the run
//! state/fl-trainer-*        the work folder of a trainer, while the client runs
//! state/trainer.sock        where a trainer attaches, if client.toml says so
//! ```
//!
//! `memory` is written before the first byte of its frame is sent, and not again before the next frame. The answer to the
//! frame is 43 bytes in `verdict`, and then decides which moments stay. A crash at any point leaves a memory, and at most a
//! question that the server can answer.

mod ack;
mod aside;
mod disk;
mod lock;
mod memory;
mod model;
mod model_updates;
mod optimizer;
mod partial_frame;
mod run_state;
mod sealed;
mod state_dir;
mod step;
mod used;

pub(crate) use aside::{DEFAULT_RUNS, make_room};
pub(crate) use disk::Disk;
pub(crate) use memory::UpdateMetadata;
pub(crate) use model::KeptModel;
pub(crate) use optimizer::{Owner, most_moments};
pub(crate) use partial_frame::{KEPT_FROM, PartialFile};
pub(crate) use run_state::RunState;
pub(crate) use sealed::sealed;
pub(crate) use state_dir::StateDir;
pub(crate) use used::bytes_below;
