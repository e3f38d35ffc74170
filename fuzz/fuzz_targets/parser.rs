//! The parser that `SCR_FUZZ_TARGET` names, with whatever bytes libFuzzer makes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scr_config::descriptor::hostlist;
use scr_core::parsers::PARSERS;
use std::path::Path;
use std::sync::LazyLock;

static PARSER: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("SCR_FUZZ_TARGET").expect("SCR_FUZZ_TARGET names the parser");
    match name.as_str() {
        "hostlist" => host_list,
        "agent_transfer" => agent_transfer,
        _ => PARSERS.iter().find(|parser| parser.name == name).expect("a parser of this name").parse,
    }
});

fuzz_target!(|bytes: &[u8]| PARSER(bytes));

fn host_list(bytes: &[u8]) {
    if let Ok(nodes) = hostlist::expand(&String::from_utf8_lossy(bytes)) {
        let again = hostlist::expand(&hostlist::compress(&nodes));
        assert!(again.is_ok_and(|again| again.len() == nodes.len()));
    }
}

fn agent_transfer(bytes: &[u8]) {
    if let Ok(transfer) = scr_agent::Transfer::from_bytes(Path::new("/c/transfer.x.scr"), bytes) {
        std::hint::black_box((transfer.bytes(), transfer.written()));
    }
}
