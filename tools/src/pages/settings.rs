//! scr.conf(5): files with settings, and every parameter of the table.

use super::sections::Texts;
use super::{see_also, today, SOURCE};
use clap_mangen::roff::{bold, line_break, roman, Roff};
use scr_config::param::{Info, TABLE};

/// The page.
pub(super) fn page(texts: &Texts) -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["scr.conf", "5", &today(), SOURCE, "scr"]);
    for (heading, paragraphs) in texts.settings.iter().filter_map(|section| section.split_first()) {
        roff.control("SH", [heading.as_str()]);
        for (position, paragraph) in paragraphs.iter().enumerate() {
            if position > 0 {
                roff.control("PP", []);
            }
            roff.text([roman(paragraph)]);
        }
    }
    roff.control("SH", ["PARAMETERS"]);
    TABLE.iter().for_each(|info| parameter(&mut roff, info));
    roff.extend([see_also("scr(1), scr-config(1), scr-run(1)")]);
    roff.render()
}

fn parameter(roff: &mut Roff, info: &Info) {
    let (value, default, set) = (info.kind.expected(), info.default.in_words(""), info.scope.label());
    let facts = format!("Value: {value}. Default: {default}. Set: {set}.");
    roff.control("TP", []).text([bold(info.name)]).text([roman(info.help), line_break(), roman(facts)]);
}
