//! The layout of everything that crosses the plugin boundary, compared with the committed text of it.
//!
//! A plugin carries the layout of the day it was built, and the host compares it with its own when it loads the
//! plugin. Names of types, fields and methods below `abi` are part of it. So a difference here means that plugins out
//! there stop loading, unless it is an addition at the end of a trait or of the module, with a higher minor version.

use abi_stable::type_layout::{TLData, TLField, TLFunction, TypeLayout};
use abi_stable::StableAbi;
use scr_plugin_api::abi::PluginModuleRef;
use std::path::Path;

/// All types reachable from one, in an order that does not change.
fn reach(layout: &'static TypeLayout, seen: &mut Vec<&'static TypeLayout>) {
    if !seen.iter().any(|other| other.get_utypeid() == layout.get_utypeid()) {
        seen.push(layout);
        nested(layout).for_each(|layout| reach(layout, seen));
    }
}

fn nested(layout: &'static TypeLayout) -> impl Iterator<Item = &'static TypeLayout> {
    let checked = layout.extra_checks().map(|checks| checks.nested_type_layouts().to_vec());
    layout.shared_vars().type_layouts().iter().map(|nested| nested()).chain(checked.into_iter().flatten())
}

fn is_ours(layout: &TypeLayout) -> bool {
    layout.package().as_str() == "scr-plugin-api"
}

/// A type's name. The name of a foreign type lacks what it is made of, so that follows it.
fn name(layout: &'static TypeLayout, depth: u32) -> String {
    let own = layout.full_type().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<String> = match depth {
        0 => Vec::new(),
        _ if is_ours(layout) => Vec::new(),
        _ => nested(layout).map(|part| name(part, depth - 1)).collect(),
    };
    if parts.is_empty() {
        own
    } else {
        format!("{own} of [{}]", parts.join(", "))
    }
}

fn function(function: &TLFunction) -> String {
    let params: Vec<_> = function.param_type_layouts.iter().map(|layout| name(layout(), 2)).collect();
    let returned = function.return_type_layout().map_or_else(|| "()".to_owned(), |layout| name(layout(), 2));
    let lifetimes = function.paramret_lifetime_indices;
    format!("fn({}) -> {returned}, {lifetimes:?}", params.join(", "))
}

fn field(field: TLField) -> String {
    let functions: String =
        field.function_range().iter().map(|found| format!("        {}\n", function(&found))).collect();
    format!("    {}: {}, {} bytes\n{functions}", field.name(), name(field.layout(), 2), field.layout().size())
}

/// The parts of a type that the loader compares.
fn described(layout: &'static TypeLayout) -> String {
    let end = match layout.data() {
        TLData::PrefixType(prefix) => {
            format!(", of which {} fields are in every version", prefix.first_suffix_field)
        }
        _ => String::new(),
    };
    let fields: String =
        layout.get_fields().into_iter().flatten().chain(layout.phantom_fields()).map(field).collect();
    format!("{}: {} bytes, aligned to {}{end}\n{fields}", name(layout, 0), layout.size(), layout.alignment())
}

#[test]
fn the_layout_is_the_one_that_plugins_out_there_were_built_with() {
    let mut seen = Vec::new();
    reach(PluginModuleRef::LAYOUT, &mut seen);
    let text: String = seen.into_iter().filter(|layout| is_ours(layout)).map(described).collect();
    let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout.txt");
    std::fs::write(&found, &text).unwrap();
    assert!(text == include_str!("layout-1.1.txt"), "compare tests/layout-1.1.txt with {}", found.display());
}
