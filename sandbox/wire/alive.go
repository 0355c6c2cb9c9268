package wire

// Changes reports whether an operation may change files or start processes. boxd counts the
// requests of such operations: see Alive.
func (o Op) Changes() bool {
	switch o {
	case OpExec, OpWrite, OpEdit, OpRemove, OpMkdir, OpRename, OpUnpack:
		return true
	}
	return false
}

// Alive says how many processes lived in a box at one moment, boxd excluded.
type Alive struct {
	// Processes counts the first processes of running calls, and the processes whose parent has
	// ended. It is 0 only if no process lived and no call ran; -1 means that it is not known.
	Processes int `json:"processes"`
	// Ended counts the requests of this connection that may change something and had ended before
	// that moment. Requests that were refused, or whose caller had gone away, are included.
	Ended uint64 `json:"ended"`
}
