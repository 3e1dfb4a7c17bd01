# Removes what `cmake --install` installed: `cmake --build BUILD --target uninstall`.
#
# MANIFEST lists the installed files. DESTDIR must be set as for the installation. Of the folders, those of
# attn alone are removed (share/attn and others), if they are empty.
if(NOT EXISTS "${MANIFEST}")
  message(FATAL_ERROR "Nothing to uninstall: ${MANIFEST} does not exist")
endif()
file(STRINGS "${MANIFEST}" files ENCODING UTF-8)
set(folders)
foreach(file IN LISTS files)
  set(file "$ENV{DESTDIR}${file}")
  message(STATUS "Removing: ${file}")
  file(REMOVE "${file}")
  cmake_path(GET file PARENT_PATH folder)
  while(folder MATCHES "/attn(/|$)")
    list(APPEND folders "${folder}")
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
endforeach()

list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING)  # inner folders first
foreach(folder IN LISTS folders)
  file(GLOB left LIST_DIRECTORIES true ${folder}/* ${folder}/.*)
  if(NOT left)
    file(REMOVE_RECURSE "${folder}")
  endif()
endforeach()
file(REMOVE "${MANIFEST}")
