# find_package(scr), or find_package(SCR): the targets scr::scr (C and C++) and scr::scrf (Fortran, and C besides), with the MPI
# that they were built for.
#
# Found from where this file lies, so that the tree can be moved.
get_filename_component(_scr_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_scr_file @LIB@/libscr.so @LIB@/libscrf.so include/scr.h)
  if(NOT EXISTS "${_scr_prefix}/${_scr_file}")
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "${_scr_prefix}/${_scr_file} is missing")
    return()
  endif()
endforeach()

# Where several MPIs are installed side by side, as Debian does it, the names of their compilers end with their own.
if(NOT MPI_EXECUTABLE_SUFFIX)
  find_program(SCR_MPICC mpicc.@MPI@)
  mark_as_advanced(SCR_MPICC)
  if(SCR_MPICC)
    set(MPI_EXECUTABLE_SUFFIX .@MPI@)
  endif()
endif()
include(CMakeFindDependencyMacro)
find_dependency(MPI)

foreach(_scr_name scr scrf)
  if(NOT TARGET scr::${_scr_name})
    add_library(scr::${_scr_name} SHARED IMPORTED)
    set_target_properties(scr::${_scr_name} PROPERTIES
      IMPORTED_LOCATION "${_scr_prefix}/@LIB@/lib${_scr_name}.so"
      IMPORTED_SONAME "lib${_scr_name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${_scr_prefix}/include")
  endif()
endforeach()
set_property(TARGET scr::scrf PROPERTY INTERFACE_LINK_LIBRARIES scr::scr)
foreach(_scr_language C CXX Fortran)
  if(TARGET MPI::MPI_${_scr_language})
    # The options of a Fortran compiler are none of the others.
    set(_scr_name scr)
    if(_scr_language STREQUAL Fortran)
      set(_scr_name scrf)
    endif()
    set_property(TARGET scr::${_scr_name} APPEND PROPERTY INTERFACE_LINK_LIBRARIES MPI::MPI_${_scr_language})
  endif()
endforeach()
set(SCR_INCLUDE_DIRS "${_scr_prefix}/include")
set(SCR_LIBRARIES scr::scr)
unset(_scr_file)
unset(_scr_language)
unset(_scr_name)
unset(_scr_prefix)
