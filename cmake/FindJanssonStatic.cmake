# SPDX-License-Identifier: MIT
# Jansson as a static library, so that nobody who links Jackal meets it: target JanssonStatic.
find_path(JanssonStatic_INCLUDE_DIR jansson.h HINTS /opt/homebrew/include /usr/local/include)
find_library(JanssonStatic_LIBRARY NAMES libjansson.a HINTS /opt/homebrew/lib /usr/local/lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(JanssonStatic
  REQUIRED_VARS JanssonStatic_LIBRARY JanssonStatic_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libjansson-dev (Debian) or jansson (Homebrew)")
if(JanssonStatic_FOUND AND NOT TARGET JanssonStatic)
  add_library(JanssonStatic STATIC IMPORTED)
  set_target_properties(JanssonStatic PROPERTIES
    IMPORTED_LOCATION "${JanssonStatic_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${JanssonStatic_INCLUDE_DIR}")
endif()
