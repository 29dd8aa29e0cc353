//! Whether a trainer's own frozen tensors are the run's, where the client has no file of them.

use std::fs::File;
use std::path::Path;

use fl_compress::weights::BasePlan;
use fl_compress::{Digest, Role, TensorSpec};
use fl_proto::open_regular;

use super::message::Hello;
use super::request::Bound;

/// Succeeds if the run has no base, the client has a file of it, or the trainer's own first weights contain it; an error
/// says what to do. `folder`: the work folder.
pub(super) async fn has_base(bound: &Bound, hello: &Hello, folder: &Path) -> Result<(), String> {
    let run = &bound.run;
    let (Some(base), None) = (run.base, &run.base_file) else {
        return Ok(());
    };
    let own = match hello.weights.as_ref().map(|name| folder.join(name)) {
        None => Err("the trainer's `hello` names no file of its own weights".to_owned()),
        Some(path) => {
            let aside = run.aside.clone();
            let compared = tokio::task::spawn_blocking(move || digest_in(&aside, &path));
            compared.await.map_err(|e| e.to_string()).flatten()
        }
    };
    let why = match own {
        Ok(found) if found == Some(base) => return Ok(()),
        Ok(found) => {
            let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
            format!("those of the trainer's own weights have the digest {found}")
        }
        Err(why) => why,
    };
    let integers = run
        .aside
        .iter()
        .filter(|tensor| tensor.role == Role::Frozen && !tensor.dtype.is_float());
    let integers: Vec<String> = integers.take(6).map(|tensor| format!("`{}`", tensor.name)).collect();
    let state = match integers.is_empty() {
        true => String::new(),
        false => format!(
            "; integers that differ from client to client, such as the state of a random generator or a counter, belong in `local` there; \
             the run has {}",
            integers.join(", ")
        ),
    };
    Err(format!(
        "the frozen tensors of run `{}`, digest {base}, are not on this device: {why}; put the file of the base model in a \
         folder and name it with `models` in client.toml, or set `serve_base = true` in [model] of the server's run.toml{state}",
        run.run
    ))
}

/// The digest of the frozen tensors in a file of the trainer; `None` if none are frozen.
fn digest_in(aside: &[TensorSpec], path: &Path) -> Result<Option<Digest>, String> {
    let Some(plan) = BasePlan::of(aside).map_err(|e| e.to_string())? else {
        return Ok(None);
    };
    let read = open_regular(File::options().read(true), path).and_then(|mut file| plan.digest_in(&mut file));
    read.map(Some).map_err(|e| format!("the trainer's own weights: {e}"))
}
