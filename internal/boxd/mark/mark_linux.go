package mark

import "golang.org/x/sys/unix"

// Times returns the times that a placeholder gets.
func Times() []unix.Timespec {
	t := unix.Timespec{Sec: sec, Nsec: nsec}
	return []unix.Timespec{t, t}
}

// Keep calls change, which makes or removes a placeholder in the open directory dir. If the directory is a placeholder
// itself, Keep then gives it back the mark, which it loses with each change of its entries.
func Keep(dir int, change func() error) error {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if err := change(); err != nil || !On(st.Mtim.Unix()) {
		return err
	}
	return unix.UtimesNanoAt(dir, ".", Times(), 0)
}
