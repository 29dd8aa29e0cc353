//! Where named learners compute.

use fl_cli::findings::Line;

use super::subject::Subject;

pub(super) fn lines(subject: &Subject<'_>) -> Vec<Line> {
    let file = subject.file;
    if !file.names_learners() {
        // A trainer chooses for itself.
        return Vec::new();
    }
    let device = file.device;
    vec![match subject.learners.device(device) {
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
