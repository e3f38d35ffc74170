//! Links the `libscr.so` of the installed tree that `SCR_DIR` names, or the one that the linker finds by itself.

fn main() {
    println!("cargo:rerun-if-env-changed=SCR_DIR");
    if let Some(tree) = std::env::var_os("SCR_DIR") {
        let of = |name: &str| std::path::Path::new(&tree).join(name);
        let lib = if of("lib64/libscr.so").exists() { of("lib64") } else { of("lib") };
        println!("cargo:rustc-link-search=native={}", lib.display());
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    }
    println!("cargo:rustc-link-lib=dylib=scr");
}
