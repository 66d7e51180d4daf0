// Before anything is drawn, so that nothing flashes: the theme that was chosen here, or that of the machine.
(() => {
  try {
    const theme = localStorage.getItem('tidegate-theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the machine's.
  }
})();
