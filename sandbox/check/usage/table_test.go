package usage

import "testing"

// The tables are part of the program: each of their lines can be read.
func TestTables(t *testing.T) {
	all, err := parse(programsText + "\n" + gitText)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Errorf("%d programs", len(all))
	}
}
