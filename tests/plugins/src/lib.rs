//! Plugins for the tests of the plugin host: see the examples, each of which is a library of its own.
