//! Pages in a real browser, headless: words can be read, pictures are there, nothing is wider than the window.

use crate::programs::repository;
use std::path::Path;
use std::process::Command;

/// The theme that the system of the reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// Dark letters on a light page.
    Light,
    /// The other way round.
    Dark,
}

/// Opens a page with a check at its end, and expects that it finds nothing wrong. `profile` is a folder of the browser's own.
pub fn expect_well_shown(page: &Path, profile: &Path, theme: Theme) {
    let check =
        std::fs::read_to_string(repository().join("tests/programs/check_page.html")).expect("the check");
    let html = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let checked = page.with_extension("checked.html");
    std::fs::write(&checked, html.replace("</body>", &format!("{check}</body>")))
        .expect("a page can be written");
    let mut browser = browser(profile, theme);
    browser.args(["--virtual-time-budget=10000", "--dump-dom"]);
    let output = browser.arg(format!("file://{}", checked.display())).output().expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = dom.split("<pre id=\"checked\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(result, Some("nothing is wrong"), "{} {theme:?}: {said}", page.display());
}

/// Takes a picture of the top of a page, for the documents.
pub fn take_picture(page: &Path, profile: &Path, theme: Theme, picture: &Path) {
    let mut browser = browser(profile, theme);
    browser.args(["--window-size=900,640", "--hide-scrollbars"]);
    browser.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", page.display()));
    let output = browser.output().expect("the browser starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(picture.exists() && output.status.success(), "{}: {said}", page.display());
}

fn browser(profile: &Path, theme: Theme) -> Command {
    let options = "--headless --no-sandbox --disable-gpu --window-size=1000,800";
    let mut browser = Command::new("timeout");
    browser.args(["60", "chromium"]).args(options.split(' '));
    // As the browser numbers what the system prefers.
    let preferred = match theme {
        Theme::Dark => 0,
        Theme::Light => 1,
    };
    browser.arg(format!("--blink-settings=preferredColorScheme={preferred}"));
    browser.arg(format!("--user-data-dir={}", profile.display()));
    browser
}
