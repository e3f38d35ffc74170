//! Reports for spreadsheets: a row for each job, or for each user.

use super::{Job, User};
use scr_core::log::{Class, Figures};

/// The rows below a line with the names of the columns. Times are in seconds, and goodput is a share.
pub(super) fn of(all: &[Job], users: Option<&Vec<User>>) -> String {
    let (names, rows): (_, Vec<_>) = match users {
        Some(users) => {
            let row = |(user, jobs, figures): &User| line([user.clone(), jobs.to_string()], figures);
            ("user,jobs", users.iter().map(row).collect())
        }
        None => {
            let row = |Job { dir, figures, .. }: &Job| {
                let dir = dir.display().to_string();
                let state = figures.state.name().to_owned();
                line([dir, figures.job_id.clone(), figures.user.clone(), state], figures)
            };
            ("prefix,job_id,user,state", all.iter().map(row).collect())
        }
    };
    let classes: String = Class::ALL.iter().map(|class| format!(",{}", word(*class))).collect();
    format!("{names},elapsed,goodput{classes},runs,failures,checkpoints\n") + &rows.concat()
}

/// The name of a class in JSON.
fn word(class: Class) -> String {
    serde_json::json!(class).as_str().unwrap_or_default().to_owned()
}

fn line<const N: usize>(names: [String; N], figures: &Figures) -> String {
    let names = names.map(|name| quoted(&name));
    let seconds = Class::ALL.iter().map(|class| figures.seconds(*class).to_string());
    let goodput = figures.goodput().map_or_else(String::new, |share| share.to_string());
    let elapsed = (figures.elapsed() as f64 / 1e6).to_string();
    let counts = [figures.runs, figures.failures, figures.checkpoints.count].map(|count| count.to_string());
    let cells: Vec<_> = names.into_iter().chain([elapsed, goodput]).chain(seconds).chain(counts).collect();
    cells.join(",") + "\n"
}

/// A text as a cell: in quotes where it would not be one.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
