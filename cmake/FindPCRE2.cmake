# PCRE2, the 8-bit library: Debian and Ubuntu's libpcre2-dev has no CMake package of its own.
#
#   find_package(PCRE2 REQUIRED)      gives the target PCRE2::pcre2-8, PCRE2_FOUND and PCRE2_VERSION
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_check_modules(pc_pcre2 QUIET libpcre2-8)
endif()
find_path(PCRE2_INCLUDE_DIR pcre2.h HINTS ${pc_pcre2_INCLUDE_DIRS})
find_library(PCRE2_LIBRARY pcre2-8 HINTS ${pc_pcre2_LIBRARY_DIRS})
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_LIBRARY)
if(PCRE2_INCLUDE_DIR)
    file(STRINGS ${PCRE2_INCLUDE_DIR}/pcre2.h version_lines REGEX "^#define PCRE2_(MAJOR|MINOR) +[0-9]+")
    string(REGEX REPLACE "[^0-9]*PCRE2_MAJOR +([0-9]+).*PCRE2_MINOR +([0-9]+).*" "\\1.\\2" PCRE2_VERSION "${version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR VERSION_VAR PCRE2_VERSION)

if(PCRE2_FOUND AND NOT TARGET PCRE2::pcre2-8)
    add_library(PCRE2::pcre2-8 UNKNOWN IMPORTED)
    set_target_properties(PCRE2::pcre2-8 PROPERTIES
        IMPORTED_LOCATION ${PCRE2_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${PCRE2_INCLUDE_DIR}
    )
endif()
