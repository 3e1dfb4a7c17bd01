# Joins ECMAScript modules and embeds them as one, because a page that loads nothing cannot import. The
# modules' names must be unique. `import {a, b} from './file.mjs';` is replaced by the file, once, and the
# word `export` is removed; other forms of both are not supported.
function(attn_join_modules folder file out)
  get_property(joined GLOBAL PROPERTY attn_joined_modules)
  if(${file} IN_LIST joined)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY attn_joined_modules ${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${file})
  file(READ ${folder}/${file} text)
  string(PREPEND text "\n")  # so that each line follows one
  string(REGEX MATCHALL "\nimport {[^}]*} from '\\./[a-z_]+\\.mjs'" imports "${text}")
  foreach(import IN LISTS imports)
    string(REGEX REPLACE ".*'\\./([a-z_]+\\.mjs)'" "\\1" imported "${import}")
    attn_join_modules(${folder} ${imported} ${out})
  endforeach()
  string(REGEX REPLACE "\nimport {[^}]*} from '\\./[a-z_]+\\.mjs';" "" text "${text}")
  string(REGEX REPLACE "/\\*\\*([^*]|\\*[^/])*\\*/" "" text "${text}")  # comments would be a third of the page
  string(REGEX REPLACE "\n *//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "\n[ \n]+" "\n" text "${text}")  # indentation would be a sixteenth
  string(REGEX REPLACE "\nexport (const|let|function|async|class) " "\n\\1 " text "${text}")
  file(APPEND ${out} "// ${file}\n${text}")
endfunction()

function(attn_embed_modules module name folder first)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.mjs)
  set_property(GLOBAL PROPERTY attn_joined_modules "")
  file(WRITE ${out}.new "")
  attn_join_modules(${folder} ${first} ${out}.new)
  file(COPY_FILE ${out}.new ${out} ONLY_IF_DIFFERENT)
  attn_embed(${module} ${name} ${out})
endfunction()
