package mem

// Parse parses a script, for the fuzz target.
func Parse(script string) error {
	_, err := parse(script)
	return err
}
