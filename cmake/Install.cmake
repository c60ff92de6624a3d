# SPDX-License-Identifier: MIT
# What `cmake --install` puts where, and how others find it: find_package(jackal) and pkg-config.
install(TARGETS jackal_shared EXPORT jackalTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS jackal-fabric LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/jackal")
# In a folder of its own, because it has the name of the platform's verbs library.
install(TARGETS jackal-verbs
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/jackal/verbs" NAMELINK_SKIP)
install(DIRECTORY include/jackal DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING PATTERN "*.md"
  PATTERN "man" EXCLUDE)
install(DIRECTORY docs/man/ DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" FILES_MATCHING PATTERN "*.1")

set(jackal_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/jackal")
install(EXPORT jackalTargets NAMESPACE jackal:: DESTINATION "${jackal_package_dir}")
configure_package_config_file(cmake/jackalConfig.cmake.in "${CMAKE_BINARY_DIR}/jackalConfig.cmake"
  INSTALL_DESTINATION "${jackal_package_dir}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/jackalConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/jackalConfig.cmake" "${CMAKE_BINARY_DIR}/jackalConfigVersion.cmake"
  DESTINATION "${jackal_package_dir}")

file(RELATIVE_PATH jackal_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" jackal_pc_to_prefix "${jackal_pc_to_prefix}")
configure_file(cmake/jackal.pc.in "${CMAKE_BINARY_DIR}/jackal.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/jackal.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
