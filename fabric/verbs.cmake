# SPDX-License-Identifier: MIT
# The same library under the platform's names, in a folder of its own: a program that knows nothing
# of Jackal runs on it by library path alone.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(verbs_made "${CMAKE_CURRENT_BINARY_DIR}/verbs")
set(verbs_script "${CMAKE_CURRENT_LIST_DIR}/../scripts/make-verbs-stubs")
set(verbs_files "${verbs_made}/verbs_stubs.c")
set(verbs_options --out "${verbs_made}" --nm "${CMAKE_NM}")
if(APPLE)
  list(APPEND verbs_options --plain)
else()
  # Read for the names and versions it has; nothing is linked against it.
  find_file(JACKAL_VERBS_SYSTEM_LIBRARY libibverbs.so.1
    PATHS ${CMAKE_SYSTEM_LIBRARY_PATH} "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}"
          "/lib/${CMAKE_LIBRARY_ARCHITECTURE}" /usr/lib64 /usr/lib /lib64 /lib)
  list(APPEND verbs_files "${verbs_made}/verbs.map")
  list(APPEND verbs_options --readelf "${CMAKE_READELF}")
  if(JACKAL_VERBS_SYSTEM_LIBRARY)
    list(APPEND verbs_options --library "${JACKAL_VERBS_SYSTEM_LIBRARY}")
  endif()
endif()
add_custom_command(
  OUTPUT ${verbs_files}
  COMMAND Python3::Interpreter -B "${verbs_script}" ${verbs_options}
          "$<TARGET_OBJECTS:jackal-fabric>"
  DEPENDS jackal-fabric "${verbs_script}"
  COMMAND_EXPAND_LISTS VERBATIM
  COMMENT "Reading the symbols of libibverbs")

add_library(jackal-verbs SHARED $<TARGET_OBJECTS:jackal-fabric> ${verbs_files})
fabric_settings(jackal-verbs)
if(CMAKE_LIBRARY_OUTPUT_DIRECTORY)
  set(verbs_lib "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
else()
  set(verbs_lib "${CMAKE_BINARY_DIR}/lib")
endif()
set_target_properties(jackal-verbs PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${verbs_lib}/verbs")
if(APPLE)
  fabric_exports(jackal-verbs)
  set_target_properties(jackal-verbs PROPERTIES OUTPUT_NAME rdma)
else()
  target_link_options(jackal-verbs PRIVATE
    "LINKER:--version-script,${verbs_made}/verbs.map" "LINKER:--no-undefined-version")
  set_target_properties(jackal-verbs PROPERTIES
    OUTPUT_NAME ibverbs SOVERSION 1 LINK_DEPENDS "${verbs_made}/verbs.map")
endif()
