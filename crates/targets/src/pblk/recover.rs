//! Start-up: the map from the tags in flash.
