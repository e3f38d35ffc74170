//! A vendor's library, found at run time: scr is built without it, and runs without it.

#![allow(unsafe_code, reason = "loading a library runs its code")]

use libloading::Library;
use scr_plugin_api::PluginError;

/// Functions of a library that is open.
#[derive(Debug)]
pub struct Symbols {
    library: Library,
    transport: &'static str,
    name: String,
}

/// Opens the library that is called `name`, or lies at that path, for the transport `transport`. `whose` says what it is, for
/// messages.
///
/// # Errors
/// It cannot be opened; the text says where it was searched for, and what to do.
pub fn open_library(transport: &'static str, whose: &str, name: &str) -> Result<Symbols, PluginError> {
    // SAFETY: the site names the vendor's library; what its initialisers do is the vendor's promise to every program that links it.
    match unsafe { Library::new(name) } {
        Ok(library) => Ok(Symbols { library, transport, name: name.to_owned() }),
        Err(error) => {
            let searched = if name.contains('/') {
                "there".to_owned()
            } else {
                let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
                format!("in LD_LIBRARY_PATH, which is `{path}', and in the system's folders")
            };
            let text = format!(
                "transport {transport}: {name}, the library of {whose}, cannot be opened; it was searched for {searched}: \
                 {error}; load the module that brings it, give its path as LIBRARY=/path/{name} in the STORE line, or choose \
                 another transport, such as FLUSH=PTHREAD",
                name = name.rsplit('/').next().unwrap_or(name),
            );
            Err(PluginError::refused(text.split_whitespace().collect::<Vec<_>>().join(" ")))
        }
    }
}

impl Symbols {
    /// A function of the library.
    ///
    /// # Errors
    /// It has none of this name; the text names both.
    ///
    /// # Safety
    /// `F` is the type that the vendor documents for this function. It must not be called when `self` is gone.
    pub unsafe fn function<F: Copy>(&self, symbol: &str) -> Result<F, PluginError> {
        // SAFETY: the type is as documented, says the caller.
        let found = unsafe { self.library.get::<F>(symbol.as_bytes()) };
        found.map(|function| *function).map_err(|error| {
            PluginError::refused(format!(
                "transport {}: {} has no function {symbol}, so it is not the library that is needed, or of another version: {error}",
                self.transport, self.name
            ))
        })
    }
}

/// Makes a struct of functions of a vendor's library, each with the types that the vendor documents and its symbol. All give an
/// `int`. It keeps the library.
#[macro_export]
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident: $($function:ident($($type:ty),*) = $symbol:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        struct $name {
            $($function: unsafe extern "C" fn($($type),*) -> ::std::ffi::c_int,)*
            /// Last, since the functions are in it.
            _library: $crate::Symbols,
        }

        impl $name {
            /// Finds them.
            ///
            /// # Errors
            /// The library lacks one.
            ///
            /// # Safety
            /// They have these types there.
            unsafe fn of(library: $crate::Symbols) -> Result<Self, ::scr_plugin_api::PluginError> {
                // SAFETY: the caller's promise, and the library is kept with the functions.
                Ok(Self { $($function: unsafe { library.function($symbol) }?,)* _library: library })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_plugin_api::PluginErrorKind;

    #[test]
    fn a_missing_library_is_reported_with_the_search_path_and_a_remedy() {
        let by_name = open_library("datawarp", "Cray's DataWarp", "libdatawarp-of-no-system.so").unwrap_err();
        for part in [
            "Cray's DataWarp",
            "LD_LIBRARY_PATH",
            "LIBRARY=/path/libdatawarp-of-no-system.so",
            "FLUSH=PTHREAD",
        ] {
            assert!(by_name.text.contains(part), "{by_name}");
        }
        assert_eq!((by_name.kind, by_name.text.lines().count()), (PluginErrorKind::Refused, 1));
        let by_path = open_library("bbapi", "IBM's burst buffer", "/no/such/libbbAPI.so").unwrap_err();
        assert!(
            by_path.text.contains("/no/such/libbbAPI.so") && !by_path.text.contains("LD_LIBRARY_PATH"),
            "{by_path}"
        );
    }

    #[test]
    fn a_missing_function_is_reported() {
        let libc = open_library("bbapi", "the C library", "libc.so.6").unwrap();
        // SAFETY: it is not called.
        let error = unsafe { libc.function::<extern "C" fn()>("BB_InitLibrary") }.unwrap_err();
        assert!(error.text.contains("libc.so.6 has no function BB_InitLibrary"), "{error}");
    }
}
