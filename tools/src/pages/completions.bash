_scr_values() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" kind="" prefix=() at value
    for ((at = 1; at < COMP_CWORD; at++)); do
        [ "${COMP_WORDS[at]}" = --prefix ] && prefix=(--prefix "${COMP_WORDS[at+1]}")
    done
    case "$prev" in
        --explain) kind=parameters ;;
        --event) kind=events ;;
        --current|--drop|--delete|--drop-after|--remove|--add|--dataset) kind=datasets ;;
        info) [ "${COMP_WORDS[COMP_CWORD-2]}" = plugin ] && kind=plugins ;;
        --prefix|--dir|--cache) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    esac
    if [ -n "$kind" ]; then
        COMPREPLY=()
        while IFS= read -r value; do
            printf -v value %q "$value"
            [[ "$value" == "$cur"* ]] && COMPREPLY+=("$value")
        done < <(scr complete "$kind" "${prefix[@]}" 2>/dev/null)
        return
    fi
    _scr "$@"
}
_scr_classic() {
    COMP_WORDS=(scr "$1" "${COMP_WORDS[@]:1}")
    COMP_CWORD=$((COMP_CWORD + 1))
    _scr_values scr "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
}
complete -F _scr_values -o bashdefault -o default scr
