package escape

// callAttempts makes system calls that the filter refuses, because no list names them
// or because no program in a box needs them.
func callAttempts() []attempt {
	const old = "this kernel does not have the call"
	return []attempt{
		{id: "call-modify-ldt", does: "read the table of segments (modify_ldt)", args: []string{"modify-ldt"}, want: "EPERM|ENOSYS", lacks: "ENOSYS", why: "this machine has no such table"},
		{id: "call-memfd-secret", does: "memory that the kernel itself does not see (memfd_secret)", args: []string{"memfd-secret"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-set-mempolicy", does: "say where memory shall lie (set_mempolicy)", args: []string{"set-mempolicy"}, want: "EPERM", lacks: "ENOSYS", why: old},
		{id: "call-get-mempolicy", does: "ask where memory lies (get_mempolicy)", args: []string{"get-mempolicy"}, want: "EPERM", lacks: "ENOSYS", why: old},
		{id: "call-listmount", does: "list mounts by their ids (listmount)", args: []string{"listmount"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-statmount", does: "ask what a mount is (statmount)", args: []string{"statmount"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-lsm-list-modules", does: "ask for the kernel's security modules (lsm_list_modules)", args: []string{"lsm-list-modules"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-file-setattr", does: "set the flags of a file (file_setattr)", args: []string{"file-setattr"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-file-getattr", does: "read the flags of a file (file_getattr)", args: []string{"file-getattr"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-fanotify-mark", does: "mark what fanotify watches (fanotify_mark)", args: []string{"fanotify-mark"}, want: "EPERM", lacks: "ENOSYS", why: old},
		{id: "call-cachestat", does: "ask which pages of a file are in memory (cachestat)", args: []string{"cachestat"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-process-mrelease", does: "take the memory of a dying process (process_mrelease)", args: []string{"process-mrelease"}, want: "ENOSYS", lacks: "ENOSYS", why: old},
		{id: "call-udplite", does: "a UDP-Lite socket", args: []string{"socket", "2", "2", "136"}, want: "EPROTONOSUPPORT", lacks: "EPROTONOSUPPORT", why: "this kernel is built without UDP-Lite"},
		{id: "call-sctp", does: "an SCTP socket", args: []string{"socket", "2", "1", "132"}, want: "EPROTONOSUPPORT", lacks: "EPROTONOSUPPORT", why: "this kernel is built without SCTP"},
		{id: "call-sctp-packets", does: "an SCTP socket by its type (SOCK_SEQPACKET)", args: []string{"socket", "2", "5", "0"}, want: "ESOCKTNOSUPPORT", lacks: "ESOCKTNOSUPPORT", why: "this kernel is built without SCTP"},
		{id: "call-dccp", does: "a DCCP socket", args: []string{"socket", "2", "6", "33"}, want: "ESOCKTNOSUPPORT", lacks: "ESOCKTNOSUPPORT", why: "this kernel is built without DCCP"},
	}
}
