# find_package(scr): the targets scr::scr (C and C++) and scr::scrf (Fortran).
#
# Found from where this file lies, so that the tree can be moved.
get_filename_component(_scr_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_scr_name scr scrf)
  if(NOT TARGET scr::${_scr_name})
    add_library(scr::${_scr_name} SHARED IMPORTED)
    set_target_properties(scr::${_scr_name} PROPERTIES
      IMPORTED_LOCATION "${_scr_prefix}/lib/lib${_scr_name}.so"
      IMPORTED_SONAME "lib${_scr_name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${_scr_prefix}/include")
  endif()
endforeach()
set_target_properties(scr::scrf PROPERTIES IMPORTED_LINK_DEPENDENT_LIBRARIES scr::scr)
unset(_scr_name)
unset(_scr_prefix)
