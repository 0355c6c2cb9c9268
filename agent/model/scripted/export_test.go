package scripted

// Counted is how many sessions have faults counted.
func (m *Model) Counted() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.faults)
}
