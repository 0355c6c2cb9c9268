package trim

import "testing"

func TestProgramPages(t *testing.T) {
	const exe = "/run/boxd"
	for line, want := range map[string]bool{
		"00400000-00600000 r-xp 00000000 fe:00 12 /run/boxd":            true,
		"00600000-00800000 r--p 00200000 fe:00 12 /run/boxd":            true,
		"00800000-00810000 rw-p 00400000 fe:00 12 /run/boxd":            false,
		"00600000-00800000 r--s 00200000 fe:00 12 /run/boxd":            false,
		"7f0000000000-7f0000001000 r-xp 00000000 fe:00 13 /lib/libc.so": false,
		"c000000000-c000400000 rw-p 00000000 00:00 0":                   false,
		"zzz r-xp 00000000 fe:00 12 /run/boxd":                          false,
		"":                                                              false,
	} {
		from, to, ok := programPages(line, exe)
		if ok != want || ok && to <= from {
			t.Errorf("%q: %x-%x %v, want %v", line, from, to, ok, want)
		}
	}
	Memory() // and the program goes on
}
