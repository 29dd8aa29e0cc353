//! Where the built-in learners compute.

use fl_cli::findings::Line;

use super::subject::Subject;

pub(super) fn lines(subject: &Subject<'_>) -> Vec<Line> {
    let file = subject.file;
    if file.tasks.values().all(|task| task.built_in().is_none()) {
        // A trainer chooses for itself.
        return Vec::new();
    }
    let device = file.device;
    vec![match device.found() {
        Ok((found, None)) => Line::good("device", format!("`{device}`: computes on the {found}")),
        Ok((found, Some(why))) => Line::warning(
            "device",
            format!("`{device}`: computes on the {found}, because no GPU can be used: {why}"),
            "repair the driver, or set `device = \"cpu\"`",
        ),
        Err(error) => Line::wrong(
            "device",
            format!("{error:#}"),
            "set `device = \"auto\"`, or another one",
        ),
    }]
}
