"""What one recorded update gives away: from its files to a case, attacks and a statement of risk."""
